"""What a search varies: knobs with ranges or choices, from words such as warmup=500..8000 and norm=pre,post."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from pipeline.workflow.dvc_yaml import params_of
from pipeline.workflow.params import Params, check_value, read_values
from transformer.files import Mistake

Value = int | float | str | bool
Knobs = Mapping[str, Value]
Space = Mapping[str, BaseDistribution]  # knob -> the values that are proposed
LOG_FROM = 10  # a range whose ends have at least this ratio is searched on a logarithmic scale
SCALES = ("log", "linear")
# Knobs of the stages up to train that a search leaves alone, and why.
FIXED = {
    **dict.fromkeys(("corpus", "source", "target", "test_sets"), "it decides what is translated"),
    **dict.fromkeys(("max_steps", "save_every"), "params.yaml decides how long trials train"),
    **dict.fromkeys(("log_every", "keep", "patience", "best_by"), "it changes no update of a training"),
    "seed": "the finalists are trained with several seeds (--seeds)",
    "init_from": "it is a folder, which the clones that trials run in may lack",
}


def space_of(words: Sequence[str], params: Params, path: Path = Path("dvc.yaml")) -> Space:
    """The space that the words of a command line name. Raises Mistake, in one line, for a word that is wrong.

    path: dvc.yaml, which lists the knobs that each stage reads.
    """
    searched, space = knobs_of_training(path), dict[str, BaseDistribution]()
    for word in words:
        knob, equals, values = word.partition("=")
        if not (equals and values):
            raise Mistake(f"{word!r} must be a knob and its values, as warmup=500..8000 or norm=pre,post.")
        if knob not in vars(params):
            raise Mistake(f"{word}: unknown knob {knob!r}. params.yaml lists the knobs.")
        if knob in FIXED:
            raise Mistake(f"{word}: {knob} is not searched: {FIXED[knob]}.")
        if knob not in searched:
            raise Mistake(
                f"{word}: {knob} is not searched: it is read after training, and a search stops most trainings early. "
                f"Use `dvc exp run --queue -S {knob}=…` on a finished model."
            )
        if knob in space:
            raise Mistake(f"{word}: {knob} has two ranges. Give one.")
        space[knob] = distribution(word, knob, values)
    return space


def knobs_of_training(path: Path) -> set[str]:
    """The knobs that the stages up to train read, by dvc.yaml."""
    knobs = set[str]()
    for name, stage in read_values(path)["stages"].items():
        knobs.update(knob for file, names in params_of(stage) if file == "params.yaml" for knob in names)
        if name == "train":
            break
    return knobs


def distribution(word: str, knob: str, text: str) -> BaseDistribution:
    """The values of a knob. word: what the user wrote. text: its part after the equals sign."""
    if ".." not in text:
        choices = [value(word, knob, part) for part in text.split(",")]
        if len(choices) < 2 or len(set(choices)) < len(choices):
            raise Mistake(f"{word}: give at least two different values, or a range such as 500..8000.")
        return CategoricalDistribution(choices)
    text, _, scale = text.partition(":")
    ends = [value(word, knob, part) for part in text.split("..")]
    if len(ends) != 2 or any(isinstance(end, (str, bool)) for end in ends) or not ends[0] < ends[1]:
        raise Mistake(f"{word}: a range is two numbers, the smaller first, as in 500..8000.")
    if scale not in ("", *SCALES):
        raise Mistake(f"{word}: the scale {scale!r} must be one of {', '.join(SCALES)}, as in 500..8000:log.")
    if scale == "log" and ends[0] <= 0:
        raise Mistake(f"{word}: a logarithmic scale begins above 0.")
    log = scale == "log" or (not scale and ends[0] > 0 and ends[1] / ends[0] >= LOG_FROM)
    return (IntDistribution if isinstance(ends[0], int) else FloatDistribution)(*ends, log=log)


def value(word: str, knob: str, text: str) -> Any:
    """A value of a knob, as params.yaml would have it. Raises Mistake for a wrong type or range."""
    try:
        setting = json.loads(text)  # a number, true or false
    except ValueError:
        setting = text
    try:
        return check_value(knob, setting)
    except Mistake:
        remedy = "Give a range such as 500..8000 or a list such as 500,1000."
        raise Mistake(f"{word}: {knob} cannot be {text} (params.yaml). {remedy}") from None


def describe(knob: str, values: BaseDistribution) -> str:
    """A knob and its values, for a person."""
    if isinstance(values, (IntDistribution, FloatDistribution)):
        return f"{knob}: {values.low} to {values.high}, {SCALES[not values.log]} scale"
    assert isinstance(values, CategoricalDistribution)
    return f"{knob}: {', '.join(map(yaml_text, values.choices))}"


def yaml_text(setting: object) -> str:
    """A value as params.yaml and `dvc exp run -S` have it."""
    return str(setting).lower() if isinstance(setting, bool) else f"{setting}"
