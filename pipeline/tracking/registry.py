"""MLflow's model registry: a version for each configuration, with the model, its search options and code.

The files of a version are never replaced. champion.py says which version is the champion.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pipeline.tracking.champion import challenge, versions_of
from pipeline.tracking.content import FinishedRun
from pipeline.tracking.model_files import FOLDER, save
from pipeline.tracking.store import Store, StoreError, asking, long_requests
from pipeline.workflow.dvc_lock import Result
from pipeline.workflow.stage import corpus_name
from transformer.decoding.config import SEARCH_OPTIONS
from transformer.files import Mistake, read_lines, sha256, sha256_text

ENGINES = {True: "agree", False: "differ", None: "were not compared"}  # values of the tag `engines`
MODEL = "model_id"  # the tag of a version with the id of its files: MLflow's own field is not stored
CHALLENGED = "challenged"  # the tag of a version whose alias was decided
ORIGIN = ("recorded_at", "DVC_")  # the beginnings of the names of tags that say where a result comes from
ELSEWHERE = (
    "MLflow keeps the files of this experiment in another place (the project was moved, or made on another machine). "
    "Nothing was registered."
)
CARD = """# {name}, {valid_bleu:.1f} BLEU on valid

Translates {source} to {target}, one sentence per line, with an encoder-decoder Transformer.

    python -m pipeline serve models:/{name}

The model has learned from its training text only. Expect worse translations than the scores show for
text of other domains and for sentences much longer than those of the training text.
"""


@dataclass(frozen=True)
class Candidate:
    """What becomes a version of a registered model.

    files: of the model folder, name -> file. card: Markdown, the version's description. tags: of the version; the tag
    `options` has the beam_size, length_penalty and extra_length with which a request is served that names none.
    engines_agree: whether the float32 export translates as this model does; None: not compared. hypotheses, references:
    of the validation set. target: the language.
    """

    name: str
    files: Mapping[str, Path]
    card: str
    tags: Mapping[str, str]
    engines_agree: bool | None
    hypotheses: list[str]
    references: list[str]
    target: str


def model_name(params: Mapping[str, Any]) -> str:
    """The name of the registered model, as in toy-de-en."""
    return re.sub(r"[^\w.-]", "_", f"{corpus_name(params)}-{params['source']}-{params['target']}")


def registered_version(store: Store, params: Mapping[str, Any], config_key: str) -> Any | None:
    """The version of a configuration, if there is one. Raises StoreError."""
    versions = versions_of(store, model_name(params))
    return next((version for version in versions if version.tags.get("config_key") == config_key), None)


def has_files(store: Store, version: Any, files: Mapping[str, Path]) -> bool:
    """Whether MLflow has the files of a model folder, with their sizes, for a version. Raises StoreError."""
    stored = store.client.list_logged_model_artifacts(version.tags[MODEL], FOLDER)
    sizes = {Path(entry.path).name: entry.file_size for entry in stored}
    return all(sizes.get(name) == file.stat().st_size for name, file in files.items())


def is_registered(store: Store, version: Any, result: Result) -> bool:
    """Whether nothing is missing of a version: its files and, unless MLflow keeps no files here, its challenge."""
    return CHALLENGED in version.tags and has_files(store, version, result.folder("data/model"))


def register_model(store: Store, result: Result, finished: FinishedRun, run_id: str) -> str:
    """Register the model of a result with this run, if it is not. Returns the message to print. Raises StoreError."""
    version = registered_version(store, finished.params, finished.config_key)
    if version is not None and is_registered(store, version, result):
        return f"models:/{version.name}/{version.version} is registered."
    return register(store, run_id, candidate(result, finished), version) if store.takes_artifacts else ELSEWHERE


def candidate(result: Result, finished: FinishedRun) -> Candidate:
    """What is registered of a result."""
    params: Mapping[str, Any] = finished.params
    valid = {side: result.file(result.raw(side, "valid")) for side in ("src", "tgt")}
    agree = result.engines_agree()
    tags = {name: tag for name, tag in finished.tags.items() if name.startswith(ORIGIN)}
    tags |= {
        "train_key": finished.train_key,
        "config_key": finished.config_key,
        "data": result.outs["data/raw"],
        "options": json.dumps({option: params[option] for option in SEARCH_OPTIONS}, sort_keys=True),
        "valid_bleu": str(finished.scores["valid_bleu"]),
        "valid_sha256": sha256_text("".join(map(sha256, valid.values()))),
        "engines": ENGINES[agree],
    }
    return Candidate(
        name=model_name(params),
        files=result.folder("data/model"),
        card=model_card(finished),
        tags=tags,
        engines_agree=agree,
        hypotheses=result.lines(result.hypotheses("valid")),
        references=list(read_lines(valid["tgt"])),
        target=str(params["target"]),
    )


def model_card(finished: FinishedRun) -> str:
    """The card of a registered model, in Markdown: use, limits, scores, data, origin and params."""
    params, tags = finished.params, finished.tags
    signed = {
        key: f"{value} {tags.get(f'signature_{key}', '')}".strip().replace("|", "\\|")
        for key, value in finished.scores.items()
    }
    data = {str(file["name"]): f"{file['lines']:,} lines, sha256 {file['sha256']}" for file in finished.datasets}
    origin = {"train_key": finished.train_key, "config_key": finished.config_key}
    origin |= {name: tag for name, tag in tags.items() if name.startswith(ORIGIN)}
    text = CARD.format(
        name=model_name(params),
        valid_bleu=finished.scores["valid_bleu"],
        source=params["source"],
        target=params["target"],
    )
    for head, rows in (("score", signed), ("data", data), ("origin", origin), ("param", params)):
        lines = "".join(f"| {key} | {value} |\n" for key, value in rows.items())
        text += f"\n| {head} | |\n| --- | --- |\n{lines}"
    return text


def register(store: Store, run_id: str, candidate: Candidate, version: Any = None) -> str:
    """Register a candidate, which then challenges the champion. Returns a message. Raises StoreError.

    version: one that lacks its files, or that did not challenge because the process or the store died.
    """
    if version is None:
        version = new_version(store, run_id, candidate)
    elif not has_files(store, version, candidate.files):
        upload(store, version.tags[MODEL], candidate)
    if CHALLENGED in version.tags:
        return f"Stored the files of models:/{version.name}/{version.version} again."
    uri = f"models:/{version.name}/{version.version}"
    store.client.set_tag(run_id, "model", uri)
    engines = ENGINES[candidate.engines_agree]
    answer = f"It is not champion: torch and CTranslate2 {engines} (reports/engines.json)."
    if candidate.engines_agree:
        answer = challenge(store, version, candidate.hypotheses, candidate.references, candidate.target)
    store.client.set_model_version_tag(version.name, version.version, CHALLENGED, "true")
    return f"Registered {uri}. {answer}"


def new_version(store: Store, run_id: str, candidate: Candidate) -> Any:
    """Log a candidate's model to its run, and register it; returns the new version.

    mlflow.pyfunc.log_model does it all, but in the run and at the address that are active in the whole process.
    """
    from mlflow.entities import LoggedModelOutput

    client, name = store.client, candidate.name
    model = client.create_logged_model(store.experiment_id, "model", source_run_id=run_id)
    upload(store, model.model_id, candidate)
    client.finalize_logged_model(model.model_id, "READY")
    client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=0)])
    try:
        client.create_registered_model(name)
    except StoreError as error:
        if error.code != "RESOURCE_ALREADY_EXISTS":
            raise
    place, tags = model.artifact_location, {**candidate.tags, MODEL: model.model_id}
    return client.create_model_version(name, place, run_id, tags, description=candidate.card, model_id=model.model_id)


def upload(store: Store, model_id: str, candidate: Candidate) -> None:
    """Store the files of a candidate's MLflow model."""
    with TemporaryDirectory() as scratch, long_requests():
        folder = Path(scratch) / "model"
        folder.mkdir()
        for name, file in candidate.files.items():
            shutil.copyfile(file, folder / name)  # MLflow follows no links out of the folder
        with asking():
            save(Path(scratch) / "saved", folder, json.loads(candidate.tags["options"]))
        store.client.log_model_artifacts(model_id, f"{scratch}/saved")


def find_version(store: Store, name: str) -> Any:
    """The version that NAME (the newest), NAME@ALIAS or NAME/VERSION names. Raises StoreError and Mistake."""
    parts = re.fullmatch(r"([^/@]+)(?:@([^/@]+)|/(\d+))?", name)
    if not parts:
        raise Mistake(f"{name!r} is not NAME, NAME@ALIAS or NAME/VERSION, as in toy-de-en@challenger")
    if parts[3]:
        return store.client.get_model_version(parts[1], parts[3])
    if parts[2]:
        return store.client.get_model_version_by_alias(parts[1], parts[2])
    versions = versions_of(store, parts[1])
    if not versions:
        raise Mistake(f"There is no registered model {parts[1]}.")
    return max(versions, key=lambda version: int(version.version))


def options(version: Any) -> dict[str, int | float]:
    """The search options of a version. Raises Mistake if one is not a number."""
    values = json.loads(version.tags.get("options", "{}"))
    if not values or not all(isinstance(value, (int, float)) for value in values.values()):
        raise Mistake(f"The tag `options` of version {version.version} of {version.name} has no numbers.")
    return values


def download(store: Store, version: Any, folder: Path) -> Path:
    """Download the files of a version; returns their folder, in `folder`. Nothing of them is executed."""
    from mlflow.artifacts import download_artifacts

    folder.mkdir(parents=True)
    uri = store.client.get_model_version_download_uri(version.name, str(version.version))
    with asking():
        return Path(download_artifacts(uri, dst_path=str(folder), tracking_uri=store.uri))
