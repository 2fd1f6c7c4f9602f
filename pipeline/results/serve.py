"""Serve models: a page to type into, with alternatives and attention, and LibreTranslate's interface for programs.

    python -m pipeline serve                            # data/model
    python -m pipeline serve EXP1 EXP2                  # experiments, commits, branches or tags, side by side
    python -m pipeline serve models:/toy-de-en workspace
    python -m pipeline serve folder/model --port 5003

`python -m transformer serve` is the same server for model folders, without DVC and MLflow. Only text and weights are
read; code that is stored with a model is not executed.

Reads   data/model, DVC's cache or MLflow's registry; the key in TRANSLATION_API_KEY, if it is set
Writes  for models:/..., MLflow's store, if there is none yet; models that it fetches are in a temporary folder until it
        ends
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from ruamel.yaml import YAML

from pipeline.tracking.content import config_key
from pipeline.tracking.registry import FOLDER
from pipeline.tracking.store import StoreError, connect, store_errors
from pipeline.workflow.dvc_lock import WORKSPACE, NoResult, Result, link_folder, result_of
from pipeline.workflow.stage import project_root
from transformer.decoding.config import SEARCH_OPTIONS, SearchConfig
from transformer.files import Mistake
from transformer.serving.command import add_options, serve
from transformer.serving.served_model import ModelEntry

MODEL, DATA = "data/model", "data/raw"
REGISTRY = "models:/"  # how MLflow's addresses of registered models begin
EXAMPLES = 3  # test sentences that the page offers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "models",
        nargs="*",
        default=[MODEL],
        metavar="MODEL",
        help="an experiment, commit, branch or tag; models:/NAME, models:/NAME@ALIAS or models:/NAME/VERSION; a model "
        "folder (default: data/model)",
    )
    add_options(parser)
    chosen = parser.parse_args()
    with TemporaryDirectory() as scratch:

        def find() -> Sequence[ModelEntry]:
            names = dict.fromkeys(chosen.models)
            return [find_model(name, Path(scratch) / str(number)) for number, name in enumerate(names)]

        serve(find, chosen)


def find_model(name: str, folder: Path) -> ModelEntry:
    """The model that a name means. folder: a new one for its files, if they must be fetched.

    name: `workspace` or data/model (the model of this folder); models:/NAME, models:/NAME@ALIAS or
    models:/NAME/VERSION; a model folder; an experiment, commit, branch or tag. Raises Mistake for what is none of
    these and for a model that is missing.
    """
    if name.startswith(REGISTRY):
        return fetch_registered(name, folder)
    if name in (WORKSPACE, MODEL):
        return read_workspace(folder)
    if (Path(name) / "model.json").is_file():
        return ModelEntry(name, Path(name))
    try:
        result = result_of(name)
    except Mistake as error:
        raise Mistake(f"{error} It is no model folder either: {name}/model.json is missing.") from None
    return read_result(result, folder)


def read_workspace(folder: Path) -> ModelEntry:
    """The model of the result in the work tree; without one data/model, as after `dvc repro ship`."""
    try:
        return read_result(Result(), folder)
    except NoResult:
        if not (Path(MODEL) / "model.json").is_file():
            raise Mistake(f"{MODEL} is missing. Run `dvc repro`, which makes it, or name an experiment.") from None
        return ModelEntry(MODEL, Path(MODEL), origin={"run": "unknown, since dvc.lock has no result"})


def read_result(result: Result, folder: Path) -> ModelEntry:
    """The model of a result, as its dvc.lock names it. Raises NoResult.

    origin: the beginnings of the key of its run and of the hash of its data, as MLflow has them.
    """
    search = SearchConfig(**{name: getattr(result.params, name) for name in SEARCH_OPTIONS})
    origin = {"run": config_key(result)[:7], "data": result.outs[DATA][:12]}
    link_folder(result.folder(MODEL), folder)
    return ModelEntry(result.name, folder, search, origin, examples(result))


def examples(result: Result) -> tuple[str, ...]:
    """The first test sentences of a result; none if DVC's cache lacks them."""
    try:
        return tuple(line for line in result.lines(result.raw("src"))[:EXAMPLES] if line)
    except NoResult:
        return ()


def fetch_registered(name: str, folder: Path) -> ModelEntry:
    """A version of a registered model, downloaded. Raises Mistake if there is none or MLflow cannot be read."""
    from mlflow.artifacts import download_artifacts
    from mlflow.models import Model

    print(f"Fetching {name} from MLflow ...", file=sys.stderr, flush=True)
    address = name if re.search("[@/]", name.removeprefix(REGISTRY)) else f"{name}/latest"
    try:
        store = connect(project_root())
        store.activate()
        with store_errors():
            saved = Path(download_artifacts(address, dst_path=str(folder)))
            metadata = Model.load(saved).metadata or {}
    except StoreError as error:
        reason = str(error).rstrip(".")
        raise Mistake(f"The model {name} cannot be fetched: {reason}. `make ui` shows all models.") from None
    if not metadata.keys() >= {*SEARCH_OPTIONS, "config_key", "data"}:
        raise Mistake(f"The model {name} was not registered by the stage `record`. Name another.")
    version = YAML(typ="safe").load(saved / "registered_model_meta")["model_version"]  # which MLflow writes beside it
    origin = {"version": str(version), "run": metadata["config_key"][:7], "data": metadata["data"][:12]}
    search = SearchConfig(**{option: metadata[option] for option in SEARCH_OPTIONS})
    return ModelEntry(name, saved / FOLDER, search, origin)
