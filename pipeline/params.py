"""Params: every knob of a run, its type and its range. The only reader of params.yaml."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from pipeline.knobs import checked, knob, place_of, restore
from transformer.decoding.config import MOST_BEAMS, MOST_EXTRA_LENGTH, MOST_LENGTH_PENALTY

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Config = TypeVar("Config", bound="DataclassInstance")
_TEST_SET = re.compile(r"[A-Za-z0-9][\w.-]*")


def first_test_set(values: Mapping[str, Any]) -> str:
    """The test set of results from before there was test_sets."""
    return "test_2016_flickr" if values.get("corpus") == "multi30k" else "test"


@dataclass(frozen=True)
class Params:
    """One complete params.yaml. There are no defaults: a missing key is an error, so the file alone defines a run."""

    corpus: str = knob(choices=("toy", "copy", "multi30k", "iwslt2017", "wmt14", "files"))
    corpus_path: str = knob()
    source: str = knob()
    target: str = knob()
    test_sets: str = knob(before=first_test_set)
    filter_empty: bool = knob(before=True)
    filter_max_characters: int = knob(least=0, before=0)
    filter_max_ratio: float = knob(least=0, before=0.0)
    filter_identical: bool = knob(before=False)
    filter_duplicates: str = knob(choices=("none", "pair", "side"), before="none")
    filter_min_alphabetic: float = knob(least=0, most=1, before=0.0)
    filter_max_word: int = knob(least=0, before=0)
    filter_numbers: bool = knob(before=False)
    filter_script: bool = knob(before=False)
    filter_language: bool = knob(before=False)
    lowercase: bool = knob()
    lowercase_source: bool = knob()
    bpe_merges: int = knob(least=0)
    min_count: int = knob(least=1)
    max_length: int = knob(least=1)
    init_from: str = knob()
    back_translation_steps: int = knob(least=0)
    seed: int = knob(least=0)
    d_model: int = knob(least=2)
    d_ff: int = knob(least=1)
    heads: int = knob(least=1)
    key_size: int = knob(least=0, before=0)
    layers: int = knob(least=1)
    encoder_layers: int = knob(least=0, before=0)
    decoder_layers: int = knob(least=0, before=0)
    dropout: float = knob(least=0, below=1)
    attention_dropout: float = knob(least=0, below=1)
    activation_dropout: float = knob(least=0, below=1)
    norm: str = knob(choices=("pre", "post"))
    positions: str = knob(choices=("sinusoidal", "learned"))
    tie_embeddings: bool = knob()
    batch_tokens: int = knob(least=1)
    device_tokens: int = knob(least=1)
    max_steps: int = knob(least=1)
    warmup: int = knob(least=1)
    lr_factor: float = knob(above=0)
    optimiser: str = knob(choices=("adam", "muon"))
    muon_factor: float = knob(above=0, before=2.0)
    adam_beta1: float = knob(least=0, below=1)
    adam_beta2: float = knob(least=0, below=1)
    adam_epsilon: float = knob(above=0)
    clip_norm: float = knob(least=0)
    gradient_compression: str = knob(choices=("none", "bfloat16"), before="none")
    label_smoothing: float = knob(least=0, below=1)
    ema_decay: float = knob(least=0, below=1)
    precision: str = knob(choices=("float32", "float64", "bfloat16"))
    deterministic: bool = knob()
    compile: bool = knob()
    log_every: int = knob(least=1)
    save_every: int = knob(least=1)
    keep: int = knob(least=1)
    patience: int = knob(least=0)
    best_by: str = knob(choices=("loss", "bleu"))
    average: str = knob(choices=("last", "best", "ema"))
    average_last: int = knob(least=1)
    beam_size: int = knob(least=1, most=MOST_BEAMS)
    length_penalty: float = knob(least=0, most=MOST_LENGTH_PENALTY)
    extra_length: int = knob(least=0, most=MOST_EXTRA_LENGTH)
    engine: str = knob(choices=("torch", "ctranslate2"))
    replace_unk: bool = knob()

    @classmethod
    def load(cls, path: Path | str) -> Params:
        """Read and check a params.yaml.

        Raises ValueError, one line with file, line number, value and remedy, for a file that is missing or not YAML, a
        key that is missing or unknown, a value of the wrong type or out of range, and values that exclude each other.
        """
        path = Path(path)
        try:
            return cls._read(path)
        except ValueError:
            # After a failed `dvc exp run -S`, git takes a params.yaml of the same size for unchanged, and the remedy
            # `git checkout` would do nothing. With a new modification time git compares the contents.
            with suppress(OSError):
                os.utime(path)
            raise

    @classmethod
    def _read(cls, path: Path) -> Params:
        """As `load`, but leaves the modification time of the file."""
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise ValueError(f"{path}: cannot read the params ({error.strerror}). {restore(path)}") from None
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: not valid YAML ({' '.join(str(error).split())}). {restore(path)}") from None
        return cls.parse(text, path)

    @classmethod
    def parse(cls, text: str, path: Path | str, recorded: bool = False) -> Params:
        """Params from the text of a params.yaml, checked as in `load`; path: its name in error messages.

        recorded: of results, which may be older than some knobs or have their older names.
        """
        path = Path(path)
        try:
            values = YAML(typ="safe").load(text)
        except MarkedYAMLError as error:
            problem = str(error.problem).split(" with value")[0]  # of a duplicate key
            place = f"{path}:{error.problem_mark.line + 1}"
            raise ValueError(f"{place}: not valid YAML ({problem}). {restore(path)}") from None
        except YAMLError as error:
            raise ValueError(f"{path}: not valid YAML ({' '.join(str(error).split())}). {restore(path)}") from None
        if not isinstance(values, dict):
            raise ValueError(f"{path}: must hold one `name: value` a line. {restore(path)}")
        known = {knob.name: knob for knob in fields(cls)}
        if recorded:
            values = cls._of_today(values)
        renamed = {knob.metadata["formerly"]: f"It is called {name} now." for name, knob in known.items()}
        for name in values:
            if name not in known:
                remedy = renamed.get(name, "Remove it or correct its name.")
                raise ValueError(f"{place_of(path, text, name)}: unknown knob {name!r}. {remedy}")
        for name in known:
            if name not in values:
                raise ValueError(f"{path}: {name} is missing. Add `{name}: …` (see recipes/toy.yaml).")
        params = cls(**{name: checked(path, text, known[name], values[name]) for name in known})
        params._check_together(path)
        return params

    def changed(self, **values: Any) -> Params:
        """A copy with other values. Raises ValueError as `load` does if a params.yaml may not hold them."""
        return Params.parse(json.dumps(vars(self) | values), "params.yaml")  # JSON is YAML

    def take(self, config: type[Config], **others: Any) -> Config:
        """A config dataclass filled with the knobs that its fields are named after; others: values of other fields."""
        names = {one.name for one in fields(config)} - others.keys()
        return config(**{name: getattr(self, name) for name in names}, **others)

    @classmethod
    def _of_today(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Recorded values under the names of today, with those of knobs that were added later."""
        older = {knob.metadata["formerly"]: knob.name for knob in fields(cls)}
        added = {
            knob.name: of_before(knob.metadata["before"], values)
            for knob in fields(cls)
            if knob.metadata["before"] is not None
        }
        return added | {older.get(name, name): value for name, value in values.items()}

    @classmethod
    def for_keys(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Values by name as the hashes that identify runs and trainings take them: as recorded before a knob was added.

        A knob at its value `before` is left out, and a renamed one has its older name, so that neither changes a hash.
        """
        known = {knob.name: knob.metadata for knob in fields(cls)}
        return {
            (name in known and known[name]["formerly"]) or name: value
            for name, value in values.items()
            if name not in known or known[name]["before"] is None or value != of_before(known[name]["before"], values)
        }

    def _check_together(self, path: Path) -> None:
        """Raise ValueError for values that are valid alone and exclude each other."""
        rules = [
            (
                len(set(self.test_sets.split())) == len(self.test_sets.split())
                and not any(name.startswith("train") or name == "valid" for name in self.test_sets.split())
                and all(map(_TEST_SET.fullmatch, self.test_sets.split())),
                f"test_sets={self.test_sets!r} must be different names of test sets, separated by spaces; none may be "
                "valid or begin with train",
            ),
            (self.d_model % self.heads == 0, f"d_model={self.d_model} does not divide into heads={self.heads}"),
            (self.d_model % 2 == 0, f"d_model={self.d_model} must be even: each frequency has a sine and a cosine"),
            (self.average_last <= self.keep, f"average_last={self.average_last} exceeds keep={self.keep}"),
            (
                self.average != "ema" or self.ema_decay > 0,
                f"average=ema needs the moving average that ema_decay={self.ema_decay:g} switches off (0.999 is usual)",
            ),
            (
                not self.replace_unk or self.bpe_merges == 0,
                f"replace_unk=true needs bpe_merges=0, got bpe_merges={self.bpe_merges}",
            ),
            (
                not self.replace_unk or self.engine == "torch",
                f"replace_unk=true needs engine=torch, got engine={self.engine}",
            ),
        ]
        for part, whole in (
            ("save_every", "max_steps"),
            ("log_every", "save_every"),
            ("save_every", "back_translation_steps"),
        ):
            size, total = getattr(self, part), getattr(self, whole)
            rules.append((total % size == 0, f"{part}={size} does not divide {whole}={total}"))
        for name in ("device_tokens", "batch_tokens"):
            tokens, limit = getattr(self, name), self.max_length
            rules.append(
                (limit < tokens, f"{name}={tokens} cannot hold a sentence of max_length={limit} subwords and its </s>")
            )
        for holds, mistake in rules:
            if not holds:
                raise ValueError(f"{path}: {mistake}. {restore(path)}")


def of_before(before: Any, values: Mapping[str, Any]) -> Any:
    """The value by which results from before a knob were computed. before: that value, or a function of the others."""
    return before(values) if callable(before) else before
