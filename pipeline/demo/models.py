"""The models of the demo: from a model folder, from an experiment that DVC holds, or from MLflow's registry.

Only weights, sizes, merges and vocabulary are read, and no code that is stored with a model is executed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline.tracking.content import config_key
from pipeline.tracking.model_files import FOLDER
from pipeline.tracking.registry import download, find_version, options
from pipeline.tracking.store import StoreError, connect
from pipeline.workflow.dvc_lock import WORKSPACE, NoResult, Result, link_folder, result_of
from pipeline.workflow.stage import project_root
from transformer.decoding.config import SEARCH_OPTIONS, SearchConfig

MODEL, DATA = "data/model", "data/raw"
REGISTRY = "models:/"  # how MLflow's addresses of registered models begin
EXAMPLES = 3  # test sentences that the page offers


@dataclass(frozen=True)
class ModelSource:
    """Where a model is, and what is known of it.

    name: as on the command line. folder: the model folder. search: the default beam_size, length_penalty and
    extra_length. facts: what it is -> its value: run, data. examples: source sentences that one can try.
    """

    name: str
    folder: Path
    search: Mapping[str, int | float]
    facts: Mapping[str, str]
    examples: tuple[str, ...] = ()


def find_model(name: str, place: Path) -> ModelSource:
    """The model that a name means. place: a new folder for its files, if they must be fetched.

    name: `workspace` or data/model (the model of this folder); models:/NAME, models:/NAME@ALIAS or
    models:/NAME/VERSION; a model folder; an experiment, commit, branch or tag. Raises ValueError for what is none of
    these and for a model that is missing.
    """
    if name.startswith(REGISTRY):
        return fetch_registered(name, place)
    if name in (WORKSPACE, MODEL):
        return read_workspace(place)
    if (Path(name) / "model.json").is_file():
        return ModelSource(name, Path(name), defaults(), {})
    return read_result(result_of(name), place)


def defaults() -> dict[str, int | float]:
    """The search options of a model that has none of its own."""
    return {name: value for name, value in asdict(SearchConfig()).items() if name in SEARCH_OPTIONS}


def read_workspace(place: Path) -> ModelSource:
    """The model of the result in the work tree; without one data/model, as after `dvc repro ship`."""
    try:
        return read_result(Result(), place)
    except NoResult:
        if not (Path(MODEL) / "model.json").is_file():
            raise ValueError(f"{MODEL} is missing. Run `dvc repro`, which makes it, or name an experiment.") from None
        return ModelSource(MODEL, Path(MODEL), defaults(), {"run": "unknown, since dvc.lock has no result"})


def read_result(result: Result, place: Path) -> ModelSource:
    """The model of a result, as its dvc.lock names it. Raises NoResult.

    facts: the beginnings of the key of its run and of the hash of its data, as MLflow has them.
    """
    search = {name: getattr(result.params, name) for name in SEARCH_OPTIONS}
    facts = {"run": config_key(result)[:7], "data": result.outs[DATA][:12]}
    link_folder(result.folder(MODEL), place)
    return ModelSource(result.name, place, search, facts, examples(result))


def examples(result: Result) -> tuple[str, ...]:
    """The first test sentences of a result; none if DVC's cache lacks them."""
    try:
        return tuple(line for line in result.lines(result.raw("src"))[:EXAMPLES] if line)
    except NoResult:
        return ()


def fetch_registered(name: str, place: Path) -> ModelSource:
    """A version of a registered model, downloaded. Raises ValueError if there is none or MLflow cannot be read."""
    print(f"Fetching {name} from MLflow ...", file=sys.stderr, flush=True)
    try:
        store = connect(project_root())
        version = find_version(store, name.removeprefix(REGISTRY))
        folder = download(store, version, place) / FOLDER
    except StoreError as error:
        raise ValueError(f"The model {name} cannot be fetched: {error}") from None
    known = {key: version.tags.get(tag, "unknown") for key, tag in (("run", "config_key"), ("data", "data"))}
    facts = {"version": str(version.version), "run": known["run"][:7], "data": known["data"][:12]}
    return ModelSource(name, folder, options(version), facts)
