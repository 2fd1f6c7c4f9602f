"""What a search varies: knobs with ranges or choices, from words such as warmup=500..8000 and norm=pre,post."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.experiments.stale import params_of, stages_of
from pipeline.knobs import checked, wanted
from pipeline.params import Params

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

Value = int | float | str | bool
LOG_FROM = 10  # a range whose ends have at least this ratio is searched on a logarithmic scale
DIGITS = 4  # significant digits of a proposed number
SCALES = ("log", "linear")
# Knobs of the stages up to train that a search leaves alone, and why.
FIXED = {
    **dict.fromkeys(("corpus", "corpus_path", "source", "target", "test_sets"), "it decides what is translated"),
    **dict.fromkeys(("max_steps", "save_every"), "params.yaml decides how long trials train"),
    **dict.fromkeys(("log_every", "keep", "patience", "best_by"), "it changes no update of a training"),
    "seed": "the finalists are trained with several seeds (--seeds)",
    "init_from": "it is a folder, which --temp experiments may lack",
}


@dataclass(frozen=True)
class Dimension:
    """A knob and the values to search: a range from `low` to `high`, on a logarithmic scale or not, or `choices`."""

    knob: str
    low: float = 0
    high: float = 0
    log: bool = False
    choices: tuple[Value, ...] = ()

    def __str__(self) -> str:
        if self.choices:
            return f"{self.knob}: {', '.join(map(written, self.choices))}"
        return f"{self.knob}: {written(self.low)} to {written(self.high)}, {SCALES[not self.log]} scale"

    def distribution(self) -> BaseDistribution:
        """This dimension for Optuna."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        if self.choices:
            return CategoricalDistribution(self.choices)
        if isinstance(self.low, int) and isinstance(self.high, int):
            return IntDistribution(self.low, self.high, log=self.log)
        return FloatDistribution(self.low, self.high, log=self.log)

    def rounded(self, value: Any) -> Any:
        """A value that Optuna proposes, a number with DIGITS significant digits but within the range."""
        if not isinstance(value, float) or self.choices:
            return value
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)


def space(words: Sequence[str], path: Path = Path("dvc.yaml")) -> list[Dimension]:
    """The dimensions that the words of a command line name. Raises ValueError, in one line, for a word that is wrong.

    path: dvc.yaml, which lists the knobs that each stage reads.
    """
    known, searched = {knob.name: knob for knob in fields(Params)}, knobs_of_training(path)
    found: dict[str, Dimension] = {}
    for word in words:
        name, equals, values = word.partition("=")
        if not (equals and values):
            raise ValueError(f"{word!r} must be a knob and its values, as warmup=500..8000 or norm=pre,post.")
        if name not in known:
            raise ValueError(f"{word}: unknown knob {name!r}. docs/params.md lists the knobs.")
        if name in FIXED:
            raise ValueError(f"{word}: {name} is not searched: {FIXED[name]}.")
        if name not in searched:
            raise ValueError(
                f"{word}: {name} is not searched: it is read after training, and a search stops most trainings early. "
                f"Use `dvc exp run --queue -S {name}=…` on a finished model."
            )
        if name in found:
            raise ValueError(f"{word}: {name} has two ranges. Give one.")
        found[name] = dimension(word, known[name], values)
    return list(found.values())


def knobs_of_training(path: Path) -> set[str]:
    """The knobs that the stages up to train read."""
    stages, found = stages_of(path.read_text(encoding="utf-8"), {}), set[str]()
    for name, stage in stages.items():
        found |= {knob for file, names in params_of(stage) for knob in names if file == "params.yaml"}
        if name == "train":
            break
    return found


def dimension(word: str, knob: Field, text: str) -> Dimension:
    """The dimension of a knob. word: what the user wrote. text: its part after the equals sign."""
    values, _, scale = text.partition(":") if ".." in text else (text, "", "")
    ends = [value(word, knob, one) for one in (values.split("..") if ".." in text else text.split(","))]
    if ".." not in text:
        if len(ends) < 2 or len(set(ends)) < len(ends):
            raise ValueError(f"{word}: give at least two different values, or a range such as 500..8000.")
        return Dimension(knob.name, choices=tuple(ends))
    if len(ends) != 2 or knob.type not in ("int", "float") or not ends[0] < ends[1]:
        raise ValueError(f"{word}: a range is two numbers, the smaller first, as in 500..8000.")
    if scale not in ("", *SCALES):
        raise ValueError(f"{word}: the scale {scale!r} must be one of {', '.join(SCALES)}, as in 500..8000:log.")
    if scale == "log" and ends[0] <= 0:
        raise ValueError(f"{word}: a logarithmic scale begins above 0.")
    log = scale == "log" or (not scale and ends[0] > 0 and ends[1] / ends[0] >= LOG_FROM)
    return Dimension(knob.name, ends[0], ends[1], log)


def value(word: str, knob: Field, text: str) -> Any:
    """A value of a knob, as params.yaml would have it. Raises ValueError for a wrong type or range."""
    found: Any = {"true": True, "false": False}.get(text, text)
    for kind in (float, int):
        try:
            found = kind(text)
        except ValueError:
            continue
    try:
        return checked(Path("params.yaml"), "", knob, found)
    except ValueError:
        must = f"{text!r} must be {wanted(str(knob.type), knob.metadata)}"
        raise ValueError(f"{word}: {must}, in a range such as 500..8000 or a list such as 500,1000.") from None


def written(found: Value) -> str:
    """A value as params.yaml and `dvc exp run -S` have it."""
    return str(found).lower() if isinstance(found, bool) else f"{found}"
