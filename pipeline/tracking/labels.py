"""What MLflow's pages call a configuration, and the descriptions of an experiment, a run and a registered model."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from pipeline.workflow.params import read_values
from pipeline.workflow.stage import corpus_name
from pipeline.workflow.versions import ROOT

RECIPES = ROOT / "recipes"
CONFIGURATION = "configuration"  # the tag with the name of a configuration
NOTE = "mlflow.note.content"  # the tag with a description
# The list of experiments shows the first twenty letters: what to click in MLflow's mode "GenAI", in which it opens.
EXPERIMENT = "Model training, top left, shows the runs, one for each configuration. `make ui` opens a table of scores."
DEFAULT = "Empty: MLflow makes it."


def configuration(params: Mapping[str, Any]) -> str:
    """The name of a configuration, whatever its seed: its recipe or corpus, as in "toy" or "dropout 0.2 (toy)"."""
    recipe, differing = nearest_recipe(params)
    name = corpus_name(params) if "corpus" in differing else recipe
    knobs = ", ".join(f"{knob} {value}" for knob, value in differing.items() if knob not in ("seed", "corpus"))
    return f"{knobs} ({name})" if knobs else name


def repetition(params: Mapping[str, Any], tags: Mapping[str, str]) -> str:
    """The description of a run: its configuration, and the line that repeats it. tags: with those of its origin."""
    recipe, differing = nearest_recipe(params)
    words = ["git", "checkout", tags["recorded_at"], "&&"] if "recorded_at" in tags else []
    words += ["cp", f"recipes/{recipe}.yaml", "params.yaml", "&&", "dvc", "exp", "run"]
    for knob, value in differing.items():
        words += ["-S", shlex.quote(f"{knob}={value if isinstance(value, str) else json.dumps(value)}")]
    return f"{configuration(params)}\n\nRepeat it:\n\n    {' '.join(words)}\n"


def nearest_recipe(params: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The recipe with the fewest other values, if possible of this corpus, and the knobs that differ from it."""
    found = {}
    for path in sorted(RECIPES.glob("*.yaml")):
        values = read_values(path)
        found[path.stem] = {knob: value for knob, value in params.items() if values.get(knob) != value}
    return min(found.items(), key=lambda item: ("corpus" in item[1], len(item[1].keys() - {"seed"})))
