"""What MLflow's pages call the settings of a run, and the descriptions of runs and experiments."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pipeline.workflow.git import blob_of
from pipeline.workflow.params import parse_yaml
from pipeline.workflow.stage import corpus_name
from pipeline.workflow.versions import ROOT
from transformer.files import Mistake, content_key

RECIPES = ROOT / "recipes"
SETTINGS = "settings"  # the tag with the name of the settings of a run, all but its seed
NOTE = "mlflow.note.content"  # the tag with a description
# The list of experiments shows the first twenty letters: what to click in MLflow's mode "GenAI", in which it opens.
EXPERIMENT_DESCRIPTION = "Model training, top left, shows the runs. `make ui` opens a table of their scores."
DEFAULT_DESCRIPTION = "Empty: MLflow makes it."


def labels(params: Mapping[str, Any], tags: Mapping[str, str]) -> dict[str, str]:
    """The tags with the settings of a run and with its description. tags: those of its origin.

    The settings are what it was trained with, whatever its seed: its recipe, and what differs, as in "dropout 0.2
    (toy)". The description has them, and the line that repeats the run.
    """
    name, recipe, differing = nearest_recipe(params)
    inside = f"{params['corpus']}, {name}" if "corpus" in differing else name
    knobs = ", ".join(f"{knob} {value}" for knob, value in differing.items() if knob not in ("seed", "corpus"))
    settings = f"{knobs} ({inside})" if knobs else inside
    checkout = f"git checkout {tags['recorded_at']} && " if "recorded_at" in tags else ""
    copy = f"cp {recipe} params.yaml && " if recipe else ""
    # A text with quotes, in which Hydra takes no character for its own.
    values = [shlex.quote(f"{knob}={json.dumps(value, ensure_ascii=False)}") for knob, value in differing.items()]
    line = " -S ".join([f"{checkout}{copy}dvc exp run", *values])
    return {SETTINGS: settings, NOTE: f"{settings}\n\nRepeat it:\n\n    {line}\n"}


def nearest_recipe(params: Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """The recipe with the fewest other values, if possible of this corpus: its name, its path, the knobs that differ.

    For a text of one's own it is the committed params.yaml; its path is "", and its name has a hash of the params.
    """
    texts = {(path.stem, f"recipes/{path.name}"): path.read_bytes() for path in RECIPES.glob("*.yaml")}
    settled = content_key(params={name: str(value) for name, value in params.items() if name != "seed"})
    texts[f"{corpus_name(params)} {settled[:5]}", ""] = blob_of("HEAD", "params.yaml") or b""
    recipes = [("toy", "recipes/toy.yaml", dict(params))]  # where recipes/ was removed
    for (name, path), text in texts.items():
        with suppress(Mistake, ValueError):  # a file that is not a recipe
            values = parse_yaml(text.decode("utf-8"), path)
            recipes.append((name, path, {knob: params[knob] for knob in params if values.get(knob) != params[knob]}))
    return min(recipes, key=lambda each: ("corpus" in each[2], not each[1], len(each[2].keys() - {"seed"}), each[0]))
