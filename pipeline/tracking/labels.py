"""What MLflow's pages call a configuration, and the descriptions of an experiment, a run and a registered model."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pipeline.workflow.params import read_values
from pipeline.workflow.versions import ROOT
from transformer.files import Mistake

RECIPES = ROOT / "recipes"
SETTINGS = "settings"  # the tag with the name of the settings of a run, all but its seed
NOTE = "mlflow.note.content"  # the tag with a description
# The list of experiments shows the first twenty letters: what to click in MLflow's mode "GenAI", in which it opens.
EXPERIMENT_DESCRIPTION = "Model training, top left, shows the runs. `make ui` opens a table of their scores."
DEFAULT_DESCRIPTION = "Empty: MLflow makes it."


def settings(params: Mapping[str, Any]) -> str:
    """What a run was trained with, whatever its seed: its recipe, and what differs, as in "dropout 0.2 (toy)"."""
    recipe, differing = nearest_recipe(params)
    name = f"{params['corpus']}, {recipe}" if "corpus" in differing else recipe
    knobs = ", ".join(f"{knob} {value}" for knob, value in differing.items() if knob not in ("seed", "corpus"))
    return f"{knobs} ({name})" if knobs else name


def run_description(params: Mapping[str, Any], tags: Mapping[str, str]) -> str:
    """The description of a run: its settings, and the line that repeats it. tags: with those of its origin."""
    recipe, differing = nearest_recipe(params)
    words = ["git", "checkout", tags["recorded_at"], "&&"] if "recorded_at" in tags else []
    words += ["cp", f"recipes/{recipe}.yaml", "params.yaml", "&&", "dvc", "exp", "run"]
    for knob, value in differing.items():  # a text with quotes, in which Hydra takes no character for its own
        words += ["-S", shlex.quote(f"{knob}={json.dumps(value, ensure_ascii=False)}")]
    return f"{settings(params)}\n\nRepeat it:\n\n    {' '.join(words)}\n"


def nearest_recipe(params: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The recipe with the fewest other values, if possible of this corpus, and the knobs that differ from it."""
    differing = {"toy": dict(params)}  # where recipes/ was removed
    for path in RECIPES.glob("*.yaml"):
        with suppress(Mistake, OSError, ValueError):  # somebody's file, which is no recipe
            values = read_values(path)
            differing[path.stem] = {knob: value for knob, value in params.items() if values.get(knob) != value}
    return min(differing.items(), key=lambda item: ("corpus" in item[1], len(item[1].keys() - {"seed"}), item[0]))
