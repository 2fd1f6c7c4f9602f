"""MLflow's model registry: a version for each model, search options and code, whose files are never replaced.

champion.py says which version is the champion. A version becomes champion by itself only if its float32 export was
compared with it and translates alike (tag `engines`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock

from pipeline.tracking.champion import CHAMPION, Gain, challenge, champion_of, versions_of, withdraw
from pipeline.tracking.content import FinishedRun
from pipeline.tracking.model_card import model_card
from pipeline.tracking.model_files import Options, code_sha256, save
from pipeline.tracking.store import Store
from pipeline.workflow.dvc_lock import Result
from transformer.decoding.config import SEARCH_OPTIONS
from transformer.evaluation.comparison import TESTS, System, compare_with_first
from transformer.files import sha256, sha256_text

NOT_COMPARED = "not compared"
ENGINES = {True: "agree", False: "differ", None: NOT_COMPARED}  # values of the tag `engines`
NO_CHAMPION = {
    False: "It is not champion: CTranslate2 does not translate as torch does (see reports/engines.json).",
    None: "It is not champion: compare_engines has not measured it. Run `dvc repro compare_engines`, then "
    "`python -m pipeline track`.",
}


@dataclass(frozen=True)
class Candidate:
    """A scored configuration whose model is to be registered.

    name: the registered model, as in "toy-de-en". folder: the model folder, named "model". options: the beam_size,
    length_penalty and extra_length of the scores; a request that leaves one out is served with these. valid_sha256: of
    the validation data. card: Markdown, the version's description. engines_agree: whether the float32 export translates
    as this one does; None: not compared. gain_over: a function from the champion's translations of the validation set
    to the Gain over them. tags: more tags of the version.
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


def register_model(store: Store, results: Result, finished: FinishedRun, origin: Mapping[str, str]) -> str:
    """Register the model of results whose run exists. Returns the message to print. Raises store errors."""
    params: Mapping[str, Any] = finished.params
    name = model_name(results, params)
    keys = {"train_key": finished.train_key, "config_key": finished.config_key}
    card = model_card(name, results.scores(), results.signatures(), finished, {**keys, **origin})
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        folder.mkdir()
        for file, place in results.folder("data/model").items():
            shutil.copyfile(place, folder / file)  # MLflow follows no links out of the folder
        candidate = Candidate(
            name=name,
            folder=folder,
            options={option: params[option] for option in SEARCH_OPTIONS},
            config_key=finished.config_key,
            card=card,
            valid_bleu=results.scores()["valid_bleu"],
            valid_sha256=valid_sha256(results),
            engines_agree=results.engines_agree(),
            gain_over=partial(gain, results, params),
            tags=origin,
        )
        return register(store, candidate)


def model_name(results: Result, params: Mapping[str, object]) -> str:
    """The name of the registered model, as in toy-de-en; for your own files with a hash of the valid set at its end."""
    name = f"{params['corpus']}-{params['source']}-{params['target']}"
    return f"{name}-{valid_sha256(results)[:8]}" if params["corpus"] == "files" else name


def valid_sha256(results: Result) -> str:
    """A hash of both sides of the validation set."""
    return sha256_text("".join(sha256(results.file(results.raw(side, "valid"))) for side in ("src", "tgt")))


def gain(results: Result, params: Mapping[str, object], champion: Sequence[str]) -> Gain:
    """How much better these results are on valid than a champion's translations of it.

    params: of the run; the target language chooses how BLEU splits lines into tokens.
    """
    lines, references = results.lines(results.hypotheses("valid")), results.lines(results.raw("tgt", "valid"))
    systems = [System("champion", params, {}, hypotheses=champion), System("challenger", params, {}, hypotheses=lines)]
    row = compare_with_first(systems, references)[1]
    return Gain(row["delta"], row[TESTS["ar"]])


def register(store: Store, candidate: Candidate) -> str:
    """Register the model of a configuration whose run exists; returns a message. Raises store errors."""
    runs = store.search(f"tags.config_key = '{candidate.config_key}'")
    if not runs:
        return (
            f"No MLflow run has config_key {candidate.config_key[:7]}. Nothing was registered. "
            "`python -m pipeline track` writes the run and registers the model."
        )
    if not store.takes_artifacts:
        return (
            "MLflow keeps the files of this experiment in another place (the project was moved, or made on another "
            "machine). Nothing was registered."
        )
    run_id = runs[0].info.run_id
    with FileLock(store.root / "work/register.lock"):  # two workers may register the same model at once
        version = put_version(store, run_id, candidate)
        uri = f"models:/{candidate.name}/{version.version}"
        for tag, value in {"model": uri, "engines": ENGINES[candidate.engines_agree]}.items():
            store.client.set_tag(run_id, tag, value)
        if candidate.engines_agree:
            return f"Registered {uri}. {challenge(store, version, candidate.gain_over)}"
        champion = champion_of(store, candidate.name)
        if champion is not None and champion.version == version.version and candidate.engines_agree is False:
            withdraw(store, version)
        return f"Registered {uri}. {NO_CHAMPION[candidate.engines_agree]}"


def put_version(store: Store, run_id: str, candidate: Candidate) -> Any:
    """The version that has a candidate's model, options, code and validation data; it is made if there is none."""
    identity = {
        "model_sha256": sha256(candidate.folder),
        "valid_sha256": candidate.valid_sha256,
        "options": json.dumps(dict(candidate.options), sort_keys=True),
        "code_sha256": code_sha256(),
    }
    versions = versions_of(store, candidate.name)
    same = [version for version in versions if all(version.tags.get(key) == identity[key] for key in identity)]
    version = max(same, key=lambda version: int(version.version)) if same else log_version(store, run_id, candidate)
    number = str(version.version)
    first = {} if "config_key" in version.tags else {"config_key": candidate.config_key, **candidate.tags}
    scored = {"valid_bleu": str(candidate.valid_bleu), "engines": ENGINES[candidate.engines_agree]}
    for key, value in {**identity, **first, **scored}.items():
        store.client.set_model_version_tag(candidate.name, number, key, value)
    return store.client.get_model_version(candidate.name, number)


def log_version(store: Store, run_id: str, candidate: Candidate) -> Any:
    """Log a candidate's model to its run, and register it; returns the new version.

    mlflow.pyfunc.log_model does it all, but in the run and at the address that are active in the whole process.
    """
    from mlflow.entities import LoggedModelOutput
    from mlflow.exceptions import MlflowException

    client, name = store.client, candidate.name
    model = client.create_logged_model(store.experiment_id, "model", source_run_id=run_id)
    with tempfile.TemporaryDirectory() as scratch, large_files():
        save(Path(scratch) / "model", candidate.folder, candidate.options)
        client.log_model_artifacts(model.model_id, f"{scratch}/model")
    client.finalize_logged_model(model.model_id, "READY")
    client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=0)])
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    return client.create_model_version(
        name, model.artifact_location, run_id, description=candidate.card, model_id=model.model_id
    )


@contextmanager
def large_files() -> Iterator[None]:
    """Give a server ten minutes to store a file."""
    name = "MLFLOW_HTTP_REQUEST_TIMEOUT"  # which `connect` has set
    before, os.environ[name] = os.environ[name], "600"
    try:
        yield
    finally:
        os.environ[name] = before


def find_version(store: Store, name: str) -> Any:
    """The version of a registered model that NAME, NAME@ALIAS or NAME/VERSION names. Raises store errors."""
    parts = re.fullmatch(r"([^/@]+)(?:@([^/@]+)|/(\d+))?", name)
    if not parts:
        raise ValueError(f"{name!r} is not NAME, NAME@ALIAS or NAME/VERSION, as in toy-de-en@challenger")
    if parts[3]:
        return store.client.get_model_version(parts[1], parts[3])
    return store.client.get_model_version_by_alias(parts[1], parts[2] or CHAMPION)


def options(version: Any) -> dict[str, int | float]:
    """The search options of a version. Raises ValueError if one is not a number."""
    values = json.loads(version.tags.get("options", "{}"))
    if not values or not all(isinstance(value, (int, float)) for value in values.values()):
        raise ValueError(f"The tag `options` of version {version.version} of {version.name} has no numbers.")
    return values


def download(store: Store, version: Any, folder: Path) -> Path:
    """Download the files of a version; returns their folder, in `folder`. Nothing of them is executed."""
    from mlflow.artifacts import download_artifacts

    folder.mkdir(parents=True)
    uri = store.client.get_model_version_download_uri(version.name, str(version.version))
    return Path(download_artifacts(uri, dst_path=str(folder), tracking_uri=store.uri))
