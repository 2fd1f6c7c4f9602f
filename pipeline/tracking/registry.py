"""MLflow's model registry: a version for each model, search options and code, whose files are never replaced.

champion.py says which version is the champion. A version whose exported models translate differently, or were not
compared with it, never becomes champion by itself (tag `engines`).
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock

from pipeline.tracking.champion import CHAMPION, Gain, challenge, champion_of, withdraw
from pipeline.tracking.model_files import Options, code_sha256, contents
from pipeline.tracking.run import TrackedRun
from pipeline.tracking.store import Store, connect
from transformer.files import sha256

ENGINES = {True: "agree", False: "differ", None: "not compared"}
NO_CHAMPION = {
    False: "It is not champion: data/ct2 does not translate as data/model does (see reports/engines.json).",
    None: "It is not champion: compare_engines has not measured it. Run `dvc repro compare_engines`, then "
    "`dvc repro --force --single-item record`.",
}


@dataclass(frozen=True)
class Candidate:
    """A scored configuration whose model is to be registered.

    name: the registered model, as in "toy-de-en". folder: the model folder, named "model". options: the beam_size,
    length_penalty and extra_length of the scores; a request that leaves one out is served with these. valid_sha256: of
    the validation data. card: Markdown, the version's description. engines_agree: whether the exported models translate
    as this one does; None: not compared. gain_over: takes the champion's translations of the validation set. tags: more
    tags of the version.
    """

    name: str
    folder: Path
    options: Options
    config_key: str
    valid_bleu: float
    valid_sha256: str
    card: str
    engines_agree: bool | None
    gain_over: Callable[[Sequence[str]], Gain]
    tags: Mapping[str, str] = field(default_factory=dict)


def register(root: Path, candidate: Candidate) -> str:
    """Register the model of a configuration whose run exists; returns a message. Raises store errors."""
    store, config_key = connect(root), candidate.config_key
    found = store.client.search_runs([store.experiment_id], f"tags.config_key = '{config_key}'", max_results=1)
    if not found:
        return (
            f"No MLflow run has config_key {config_key[:7]}. Nothing was registered. "
            "`python -m pipeline track` writes the run and registers the model."
        )
    if not store.takes_artifacts:
        return (
            "MLflow keeps the files of this experiment in another place (the project was moved, or made on another "
            "machine). Nothing was registered."
        )
    run = TrackedRun(store.client, found[0])
    with FileLock(root / "work" / "register.lock"):  # two workers may register the same model at once
        version = put_version(store, run, candidate)
        uri = f"models:/{candidate.name}/{version.version}"
        store.client.set_tag(run.id, "model", uri)
        if candidate.engines_agree:
            return f"Registered {uri}. {challenge(store, version, candidate.gain_over)}"
        champion = champion_of(store, candidate.name)
        if champion is not None and champion.version == version.version and candidate.engines_agree is False:
            withdraw(store, version)
        return f"Registered {uri}. {NO_CHAMPION[candidate.engines_agree]}"


def put_version(store: Store, run: TrackedRun, candidate: Candidate) -> Any:
    """The version that has a candidate's model, options, code and validation data; it is made if there is none."""
    identity = {
        "model_sha256": sha256(candidate.folder),
        "valid_sha256": candidate.valid_sha256,
        "options": json.dumps(dict(candidate.options), sort_keys=True),
        "code_sha256": code_sha256(),
    }
    version = find_version(store, candidate.name, identity) or log_version(store, run, candidate)
    number = str(version.version)
    first = {} if "config_key" in version.tags else {"config_key": candidate.config_key, **candidate.tags}
    scored = {"valid_bleu": str(candidate.valid_bleu), "engines": ENGINES[candidate.engines_agree]}
    for key, value in {**identity, **first, **scored}.items():
        store.client.set_model_version_tag(candidate.name, number, key, value)
    return store.client.get_model_version(candidate.name, number)


def find_version(store: Store, name: str, tags: Mapping[str, str]) -> Any | None:
    """The newest version of a registered model that has these tags; None if there is none."""
    found = store.client.search_model_versions(f"name = '{name}'")
    same = [one for one in found if all(one.tags.get(key) == value for key, value in tags.items())]
    return max(same, key=lambda one: int(one.version), default=None)


def log_version(store: Store, run: TrackedRun, candidate: Candidate) -> Any:
    """Log a candidate's model to its run by MLflow's log_model, and return the version that this registers."""
    import mlflow
    from mlflow.models import Model

    arguments = contents(candidate.folder, candidate.options)
    variable = "MLFLOW_TRACKING_URI"
    before = os.environ.get(variable)
    mlflow.set_tracking_uri(store.uri)  # which sets the variable too
    try:
        # mlflow.pyfunc.log_model calls Model.log, which also takes a run_id (the run's end time then stays) and the id
        # of a model in this experiment.
        model = store.client.create_logged_model(store.experiment_id, "model", source_run_id=run.id)
        with redirect_stderr(io.StringIO()):  # it reports each step
            logged = Model.log(
                None,
                mlflow.pyfunc,
                run_id=run.id,
                registered_model_name=candidate.name,
                model_id=model.model_id,
                **arguments,
            )
    finally:
        os.environ.pop(variable, None)
        if before is not None:
            os.environ[variable] = before
    number = str(logged.registered_model_version)
    store.client.update_model_version(candidate.name, number, candidate.card)
    return store.client.get_model_version(candidate.name, number)


def version_named(store: Store, name: str) -> Any:
    """The version of a registered model that NAME, NAME@ALIAS or NAME/VERSION names. Raises store errors."""
    found = re.fullmatch(r"([^/@]+)(?:@([^/@]+)|/(\d+))?", name)
    if not found:
        raise ValueError(f"{name!r} is not NAME, NAME@ALIAS or NAME/VERSION, as in toy-de-en@challenger")
    if found[3]:
        return store.client.get_model_version(found[1], found[3])
    return store.client.get_model_version_by_alias(found[1], found[2] or CHAMPION)


def options(version: Any) -> dict[str, int | float]:
    """The search options of a version. Raises ValueError if one is not a number."""
    found = json.loads(version.tags.get("options", "{}"))
    if not found or not all(isinstance(value, (int, float)) for value in found.values()):
        raise ValueError(
            f"Version {version.version} of {version.name} has no tag `options`; it was registered by an older version "
            "of this project. `dvc repro --force --single-item record` registers the model again."
        )
    return found


def download(store: Store, version: Any, folder: Path) -> Path:
    """Download the files of a version; returns their folder, in `folder`. Nothing of them is executed."""
    from mlflow.artifacts import download_artifacts

    folder.mkdir(parents=True)
    uri = f"models:/{version.name}/{version.version}"
    return Path(download_artifacts(uri, dst_path=str(folder), tracking_uri=store.uri))
