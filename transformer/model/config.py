"""Sizes and settings of a Transformer; the values that settings may have, and their check.

This module does not import torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cache
from numbers import Integral, Real
from operator import attrgetter, ge, gt, le, lt
from pathlib import Path
from reprlib import repr as shorten
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, Lt, MultipleOf

from transformer.files import Mistake

Count = Annotated[int, Ge(1), Le(10**9)]
Layers = Annotated[int, Ge(1), Le(1000)]
LayersOrNone = Annotated[int, Ge(0), Le(1000)]
CountOrNone = Annotated[int, Ge(0), Le(10**9)]  # 0: none, never, or as another setting says
NotNegative = Annotated[float, Ge(0)]
Positive = Annotated[float, Gt(0)]
Share = Annotated[float, Ge(0), Lt(1)]
Even = Annotated[int, Ge(2), Le(10**9), MultipleOf(2)]
Norm = Literal["pre", "post"]
Positions = Literal["sinusoidal", "learned"]

_KINDS = {bool: (bool, "True or False"), int: (Integral, "a whole number"), float: (Real, "a finite number")}
_BOUNDS = {  # kind of bound -> words, its number, whether a value is within
    Ge: ("at least", attrgetter("ge"), ge),
    Gt: ("above", attrgetter("gt"), gt),
    Le: ("at most", attrgetter("le"), le),
    Lt: ("below", attrgetter("lt"), lt),
    MultipleOf: ("a multiple of", attrgetter("multiple_of"), lambda value, step: value % step == 0),
}
_types = cache(get_type_hints)


def check_settings(settings: Any) -> None:
    """Raise Mistake for the first field of a dataclass whose value its type does not allow.

    The type is bool, a Literal of strings, or int or float, Annotated with bounds or not. A number of another library,
    as numpy's, becomes Python's.
    """
    for name, kind in _types(type(settings), include_extras=True).items():
        value = getattr(settings, name)
        if required := unmet_requirement(value, kind):
            raise Mistake(f"{name}={shorten(value)} must be {required}.")
        if get_origin(kind) is not Literal:
            object.__setattr__(settings, name, plain_type(kind)(value))


def plain_type(kind: Any) -> type:
    """bool, int or float of a type that may be Annotated with bounds."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def unequal_parts(settings: Any, pairs: Iterable[tuple[str, str]]) -> list[str]:
    """A message for each setting that does not divide its total. pairs: the names of both, (part, total)."""
    messages = []
    for part, total in pairs:
        size, steps = getattr(settings, part), getattr(settings, total)
        if rest := steps % size:
            near = " or ".join(str(number) for number in (steps - rest, steps - rest + size) if number)
            messages.append(
                f"{part}={size} does not divide {total}={steps}. Change one of them, for example {total}={near}."
            )
    return messages


def unmet_requirement(value: Any, kind: Any) -> str:
    """What values a type allows, in words, if `value` is none of them; else ""."""
    if get_origin(kind) is Literal:
        return "" if isinstance(value, str) and value in get_args(kind) else " or ".join(map(repr, get_args(kind)))
    plain = plain_type(kind)
    numbers, words = _KINDS[plain]
    bounds = [
        (text, bound(mark), within) for mark in get_args(kind)[1:] for text, bound, within in [_BOUNDS[type(mark)]]
    ]
    fits = isinstance(value, numbers) and isinstance(value, bool) == (plain is bool)
    fits = fits and (plain is not float or is_finite(value))
    if fits and all(within(value, bound) for _, bound, within in bounds):
        return ""
    return ", ".join([words, *(f"{text} {bound:,}" for text, bound, _ in bounds)])


def is_finite(number: Any) -> bool:
    """Whether a number is neither infinite nor nan, nor too large for a float."""
    try:
        return math.isfinite(number)
    except OverflowError:
        return False


@dataclass(frozen=True)
class TransformerConfig:
    """Sizes and settings of a Transformer; by default those of the paper's base model.

    The fields have the names of params.yaml; model.json stores them. Raises Mistake for a value out of range.

    vocabulary: V. max_positions: rows of a learned position table; later positions use its last row. Sinusoids have no
    limit. norm: pre or post (section 3.1). positions: sinusoidal or learned (section 3.5). tie_embeddings: one matrix
    (V, D) for source, target and projection (section 3.4). dropout: probability on embeddings and on the output of each
    sub-layer (section 5.4). attention_dropout: on attention weights. activation_dropout: inside feed-forward.
    key_size: width of the queries and keys of a head, d_k of section 3.2.1; 0: d_model / heads, which is always the
    width of its values. encoder_layers, decoder_layers: 0: layers.
    """

    vocabulary: Count
    max_positions: Count = 512
    d_model: Even = 512  # even: each frequency has a sine and a cosine
    d_ff: Count = 2048
    heads: Count = 8
    layers: Layers = 6
    dropout: Share = 0.1
    norm: Norm = "post"
    positions: Positions = "sinusoidal"
    tie_embeddings: bool = True
    attention_dropout: Share = 0.0
    activation_dropout: Share = 0.0
    key_size: CountOrNone = 0
    encoder_layers: LayersOrNone = 0
    decoder_layers: LayersOrNone = 0

    def __post_init__(self) -> None:
        check_settings(self)
        if self.d_model % self.heads:
            raise Mistake(f"d_model={self.d_model} does not divide into heads={self.heads}. Change one of them.")

    @classmethod
    def read(cls, sizes: dict[str, Any], path: Path) -> TransformerConfig:
        """The sizes in the model.json `path`. Raises Mistake, which names the file, for a mistake in them."""
        try:
            if wrong := {field.name for field in fields(cls)} ^ sizes.keys():
                raise Mistake(f"{shorten(min(wrong))} is {'unknown' if min(wrong) in sizes else 'missing'}.")
            return cls(**sizes)
        except Mistake as error:
            raise Mistake(f"{path}: damaged (sizes: {error}) Copy the model folder again.") from None

    @property
    def complete(self) -> TransformerConfig:
        """The same model, with its numbers in the place of those that are 0."""
        return replace(
            self,
            key_size=self.key_size or self.d_model // self.heads,
            encoder_layers=self.encoder_layers or self.layers,
            decoder_layers=self.decoder_layers or self.layers,
        )
