"""The models of the demo: from a model folder, from an experiment that DVC holds, or from MLflow's registry.

Only weights, sizes, merges and vocabulary are read, and no code that is stored with a model is executed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipeline.tracking.content import run_keys
from pipeline.tracking.model_files import FOLDER
from pipeline.tracking.registry import download, find_version, options
from pipeline.tracking.store import Store, connect, reason, store_errors
from pipeline.workflow.dvc_lock import WORKSPACE, Result, link_folder, result_of
from pipeline.workflow.stage import corpus_name, project_root
from transformer.decoding.config import SEARCH_OPTIONS, SearchConfig
from transformer.files import sha256_text

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
        return read_workspace()
    if (Path(name) / "model.json").is_file():
        return ModelSource(name, Path(name), defaults(), {})
    try:
        experiment = result_of(name)
    except ValueError as error:
        raise ValueError(f"{error} A model can also be a folder with model.json, or models:/NAME@ALIAS.") from None
    return read_experiment(experiment, place)


def defaults() -> dict[str, int | float]:
    """The search options of a model that has none of its own."""
    return {name: value for name, value in asdict(SearchConfig()).items() if name in SEARCH_OPTIONS}


def read_workspace() -> ModelSource:
    """data/model of this folder; its run and data, if dvc.lock says that this is the model it was made of."""
    folder, here = Path(MODEL), Result()
    if not (folder / "model.json").is_file():
        raise ValueError(f"{folder} is missing. Run `dvc repro`, which makes it, or name an experiment.")
    with suppress(ValueError, KeyError, OSError):
        if here.entries():
            return ModelSource(MODEL, folder, search(here), facts(here), examples(here))
    return ModelSource(MODEL, folder, defaults(), {"run": "unknown, since this is not the model of dvc.lock"})


def read_experiment(experiment: Result, place: Path) -> ModelSource:
    """The model of an experiment, from DVC's cache. Raises ValueError if it has none, or DVC's cache lacks it."""
    link_folder(experiment.folder(MODEL), place)
    return ModelSource(experiment.name, place, search(experiment), facts(experiment), examples(experiment))


def search(experiment: Result) -> dict[str, int | float]:
    """The search options of an experiment."""
    return {name: getattr(experiment.params, name) for name in SEARCH_OPTIONS}


def facts(experiment: Result) -> dict[str, str]:
    """The key of an experiment's run and the hash of its data, as MLflow has them.

    Both are unknown if DVC's cache lacks a file that they are computed from.
    """
    try:
        _, config_key = run_keys(experiment)
        name = corpus_name(vars(experiment.params))
        return {"run": f"{name} {config_key[:7]}", "data": experiment.outs[DATA][:12]}
    except (ValueError, KeyError, OSError):
        return {"run": "unknown, since DVC's cache lacks its data or translations"}


def examples(experiment: Result) -> tuple[str, ...]:
    """The first test sentences of an experiment; none if they are not there."""
    with suppress(ValueError, KeyError, OSError):
        return tuple(line for line in experiment.lines(experiment.raw("src"))[:EXAMPLES] if line)
    return ()


def fetch_registered(name: str, place: Path) -> ModelSource:
    """A version of a registered model, downloaded. Raises ValueError if there is none or MLflow cannot be read."""
    print(f"Fetching {name} from MLflow ...", file=sys.stderr, flush=True)
    try:
        store = connect(project_root())
        version = find_version(store, name.removeprefix(REGISTRY))
        folder = download(store, version, place) / FOLDER
        known = facts_of_version(store, version)
    except store_errors() as error:
        raise ValueError(f"The model {name} cannot be fetched: {reason(error)}") from None
    return ModelSource(name, folder, options(version), known)


def facts_of_version(store: Store, version: Any) -> dict[str, str]:
    """The number of a version, and the key of its run and the hash of its data as in `facts`. Raises store errors."""
    run = store.client.get_run(version.run_id)
    corpus = corpus_name(run.data.params)
    known = {"version": str(version.version), "run": f"{corpus} {run.data.tags.get('config_key', '')[:7]}"}
    inputs = run.inputs.dataset_inputs if run.inputs else []
    files = {
        data.dataset.name.removeprefix(f"{corpus} "): json.loads(data.dataset.profile or "{}").get("sha256")
        for data in inputs
    }
    listing = "".join(f"{digest}  {name}\n" for name, digest in sorted(files.items()))
    return known | ({"data": sha256_text(listing)[:12]} if files else {})
