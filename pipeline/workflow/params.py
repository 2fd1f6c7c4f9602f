"""Params: every knob of a run, its type and its range. The only reader of params.yaml."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from dataclasses import fields
from difflib import get_close_matches
from functools import cache
from itertools import accumulate
from pathlib import Path
from reprlib import repr as shorten
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, Field, TypeAdapter, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent

from transformer.decoding.config import Beams, ExtraLength, LengthPenalty
from transformer.files import Mistake, is_bug
from transformer.model.config import (
    Count,
    CountOrNone,
    Even,
    Layers,
    LayersOrNone,
    Norm,
    NotNegative,
    Positions,
    Positive,
    Share,
    unequal_parts,
)
from transformer.training.config import BestBy, Optimiser, Precision, TrainConfig

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Config = TypeVar("Config", bound="DataclassInstance")
Word = Annotated[str, Field(min_length=1)]
DEEPEST, LARGEST = 20, 100_000  # lists and mappings within each other; bytes of a params.yaml
MOST_NAMED = 4  # wrong knobs in one message
TEST_SET = re.compile(r"(?!train|valid$)[A-Za-z0-9][\w.-]*")


class Params(BaseModel, frozen=True, extra="forbid", strict=True, allow_inf_nan=False):
    """One complete params.yaml, in which each knob must have a line."""

    corpus: Word
    source: Word
    target: Word
    test_sets: Word
    filter_empty: bool
    filter_max_characters: CountOrNone
    filter_max_ratio: NotNegative
    filter_identical: bool
    filter_duplicates: Literal["none", "pair", "side"]
    filter_min_alphabetic: float = Field(ge=0, le=1)
    filter_max_word: CountOrNone
    filter_numbers: bool
    filter_script: bool
    filter_language: bool
    normalise: Literal["nfc", "none"]
    placeholders: bool
    lowercase: bool
    lowercase_source: bool
    bpe_merges: CountOrNone
    min_count: Count
    max_length: Count
    variants: Share
    init_from: Word
    d_model: Even
    d_ff: Count
    heads: Count
    key_size: CountOrNone
    layers: Layers
    encoder_layers: LayersOrNone
    decoder_layers: LayersOrNone
    dropout: Share
    attention_dropout: Share
    activation_dropout: Share
    norm: Norm
    positions: Positions
    tie_embeddings: bool
    seed: CountOrNone
    batch_tokens: Count
    device_tokens: Count
    max_steps: Count
    back_translation_steps: CountOrNone
    label_smoothing: Share
    precision: Precision
    deterministic: bool
    compile: bool
    optimiser: Optimiser
    warmup: Count
    lr_factor: Positive
    muon_factor: Positive
    adam_beta1: Share
    adam_beta2: Share
    adam_epsilon: Positive
    clip_norm: NotNegative
    log_every: Count
    save_every: Count
    patience: CountOrNone
    best_by: BestBy
    keep: Count
    average: Literal["last", "best", "valid"]
    average_last: Count
    beam_size: Beams
    length_penalty: LengthPenalty
    extra_length: ExtraLength
    engine: Literal["auto", "torch", "ctranslate2"]

    @classmethod
    def load(cls, path: Path | str) -> Params:
        """Read and check a params.yaml.

        Raises Mistake, one line with file, line number, value and remedy, for a file that is missing or not YAML, a
        knob that is missing or unknown, a value of the wrong type or out of range, and values that exclude each other.
        """
        path = Path(path)
        if path.exists() and not (path.is_file() and path.stat().st_size <= LARGEST):
            raise Mistake(f"{path} is no regular file of at most {LARGEST:,} bytes. {restore(path)}")
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise Mistake(f"{path}: cannot read the params ({error.strerror}). {restore(path)}") from None
        except UnicodeDecodeError as error:
            raise Mistake(f"{path}: not valid YAML ({' '.join(str(error).split())}). {restore(path)}") from None
        try:
            return cls.parse(text, path)
        except Mistake:
            # After a failed `dvc exp run -S`, git takes a params.yaml of the same size for unchanged, and the remedy
            # `git checkout` would do nothing. With a new modification time git compares the contents.
            with suppress(OSError):
                os.utime(path)
            raise

    @classmethod
    def parse(cls, text: str, path: Path | str) -> Params:
        """Params from the text of a params.yaml, checked as in `load`. path: its name in error messages."""
        path = Path(path)
        values = parse_yaml(text, path, restore(path))
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            errors = sorted(error.errors(), key=lambda each: each["type"] == "missing")  # what is there comes first
            mistakes = [line for mistake in errors for line in explain(mistake, path, text)]
            several = f"{len(mistakes)} knobs are wrong. " if len(mistakes) > 1 else ""
            if len(mistakes) > MOST_NAMED:
                several = f"{len(mistakes)} knobs are wrong; the first {MOST_NAMED} are: "
            raise Mistake(f"{several}{' '.join(mistakes[:MOST_NAMED])} {restore(path)}") from None

    def replace(self, **values: Any) -> Params:
        """A copy with other values. Raises Mistake as `load` does if a params.yaml may not have them."""
        return Params.parse(json.dumps(vars(self) | values), "params.yaml")  # JSON is YAML

    def take(self, config: type[Config], **values: Any) -> Config:
        """A config dataclass filled with the knobs that its fields are named after; values: of other fields."""
        names = {field.name for field in fields(config)} - values.keys()
        return config(**{name: getattr(self, name) for name in names}, **values)

    @model_validator(mode="after")
    def check_together(self) -> Self:
        """Raise Mistake for values that are valid alone and exclude each other."""
        names, wrong = self.test_sets.split(), []
        if not names or len(set(names)) < len(names) or not all(map(TEST_SET.fullmatch, names)):
            wrong.append(
                f"test_sets={self.test_sets!r} must be different names of test sets, separated by spaces; none may be "
                "valid or begin with train"
            )
        if self.d_model % self.heads:
            wrong.append(f"d_model={self.d_model} does not divide into heads={self.heads}")
        try:
            self.take(TrainConfig)
        except Mistake as error:
            wrong.append(str(error))
        wrong += unequal_parts(self, [("save_every", "back_translation_steps")])
        for name in ("device_tokens", "batch_tokens"):
            if (tokens := getattr(self, name)) <= self.max_length:
                wrong.append(
                    f"{name}={tokens} cannot hold a sentence of max_length={self.max_length} subwords and its </s>"
                )
        if self.average_last > self.keep:
            wrong.append(f"average_last={self.average_last} exceeds keep={self.keep}")
        if wrong:
            raise Mistake("\n".join(wrong))
        return self


def check_value(name: str, value: Any) -> Any:
    """The value of a knob in its type: an int becomes a float. Raises Mistake if the knob may not have it."""
    if (field := Params.model_fields.get(name)) is None:
        raise Mistake(f"unknown knob {name!r}")
    try:
        kind: Any = Annotated[field.annotation, field]
        return TypeAdapter(kind, config=Params.model_config).validate_python(value)
    except ValidationError as error:
        raise Mistake(f"{name}={value!r} {reason(error.errors()[0])}") from None


@cache
def parse_yaml(text: str, path: Path | str, remedy: str = "") -> dict[str, Any]:
    """The names and values of a YAML text, cached, so only to be read. Raises Mistake with path and remedy."""
    try:
        events = YAML(typ="safe").parse(text)
        steps = (isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent) for event in events)
        if any(depth > DEEPEST for depth in accumulate(steps)):  # the C loader would overflow its stack
            raise Mistake(f"nested more than {DEEPEST} deep")
        values = YAML(typ="safe").load(text)
    except Exception as error:  # of YAML, and of any kind where a tag and its value do not go together
        if is_bug(error):
            raise
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", error)
        problem = " ".join(str(problem).split()).split(" with value")[0][:100]  # of a duplicate key
        line = f":{mark.line + 1}" if mark else ""
        raise Mistake(f"{path}{line}: not valid YAML ({problem}). {remedy}".strip()) from None
    if not isinstance(values, dict):
        raise Mistake(f"{path}: must contain one `name: value` a line. {remedy}".strip())
    return {str(name): value for name, value in values.items()}


def read_values(path: Path | str) -> dict[str, Any]:
    """The names and values of a YAML file, unchecked; see `parse_yaml`."""
    return parse_yaml(Path(path).read_text(encoding="utf-8"), path)


def reason(mistake: Any) -> str:
    """What is wrong, from an entry of pydantic's ValidationError.errors(); without a full stop at its end."""
    error = mistake.get("ctx", {}).get("error")
    return str(error).removesuffix(".") if error else re.sub(r"^\w+ should", "must", mistake["msg"])


def explain(mistake: Any, path: Path, text: str) -> list[str]:
    """A sentence with position, name and value for each knob that an entry of ValidationError.errors() is about."""
    if not mistake["loc"]:  # values that exclude each other: each line begins with the name of a knob
        lines = reason(mistake).split("\n")
        return [f"{position_of(path, text, line.partition('=')[0])}: {line.removesuffix('.')}." for line in lines]
    name = str(mistake["loc"][0])
    if mistake["type"] == "missing":
        return [f"{path}: {name} is missing. Add `{name}: …` (see recipes/toy.yaml)."]
    position = position_of(path, text, name)
    if mistake["type"] == "extra_forbidden":
        near = "".join(f" Did you mean {knob}?" for knob in get_close_matches(name, Params.model_fields, n=1))
        return [f"{position}: unknown knob {shorten(name)}. Remove it or correct its name.{near}"]
    return [f"{position}: {name}={shorten(mistake['input'])} {reason(mistake)}."]


def position_of(path: Path, text: str, name: str) -> str:
    """Where a knob is, for error messages: `file:line`."""
    for number, line in enumerate(text.split("\n"), start=1):
        if re.match(rf"""[\s{{,]*["']?{re.escape(name)}["']?\s*:""", line):
            return f"{path}:{number}"
    return str(path)


def restore(path: Path) -> str:
    """The remedy for a wrong params.yaml."""
    return f"Correct it, or run `git checkout HEAD -- {path}`, which discards all edits of the file."
