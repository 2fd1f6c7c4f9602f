"""The model of a row in MLflow's registry: a version that can be served, with its card, and the alias `champion`.

One version per model, uploaded once: of the configurations that share it (other beams, say), it carries the card and
the options of the best on valid. Versions whose validation data differ are not compared: the champion is the best in
valid_bleu among those with the data of the version that came last. A version whose exported models translate otherwise
than it does, or were not compared with it, is never made champion (the tag `engines`).
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock

from transformer.files import sha256
from transformer.tracking.model_card import CHAMPION
from transformer.tracking.run import TrackedRun
from transformer.tracking.store import Store, connect

PACKAGES = ("mlflow", "numpy", "pandas", "safetensors", "spacy", "subword-nmt", "torch", "tqdm")  # to serve it
ARTIFACT = "model"
ENGINES = {True: "agree", False: "differ", None: "not compared"}
NO_CHAMPION = {
    False: "it is not made champion, since data/ct2 does not translate as data/model (reports/engines.json)",
    None: "it is not made champion before compare_engines has measured it: `dvc repro`",
}


def register(
    root: Path,
    name: str,
    folder: Path,
    options: Mapping[str, int | float],
    config_key: str,
    valid_bleu: float,
    valid_sha256: str,
    card: str,
    engines_agree: bool | None,
) -> str:
    """Register the model folder of a configuration whose row is there. Returns what to say of it.

    options: beam_size, length_penalty and extra_length that it was scored with, and is served with unless a request
    has its own. card: Markdown, kept beside the model and as the version's description. engines_agree: whether the
    exported models translate as this one; None: not compared. Raises store errors.
    """
    store = connect(root)
    found = store.client.search_runs([store.experiment_id], f"tags.config_key = '{config_key}'", max_results=1)
    if not found:
        return (
            f"no MLflow row has config_key {config_key[:7]}: nothing to register; `python -m pipeline track` makes it"
        )
    if not store.takes_artifacts:
        return "MLflow keeps this experiment's files in another place: nothing registered"
    run = TrackedRun(store.client, found[0])
    tags = {"config_key": config_key, "valid_bleu": str(valid_bleu), "valid_sha256": valid_sha256}
    same = {"model_sha256": sha256(folder), "valid_sha256": valid_sha256}
    with FileLock(root / "work" / "register.lock"):  # the same model may come from two workers at once
        known = version_of(store, name, same)
        if known is None:
            upload(store, run, folder, options, card)
            known = create_version(store, run, name, card)
        elif not is_updated_by(known, config_key, valid_bleu):
            tags = {}
        elif known.tags.get("config_key") != config_key:
            update_version(store, known, folder, options, card)
        for key, value in {**same, **tags, "engines": ENGINES[engines_agree]}.items():
            store.client.set_model_version_tag(name, str(known.version), key, value)
        best = choose_champion(store, name, valid_sha256)
    store.client.set_tag(run.id, "model", f"models:/{name}/{known.version}")
    outcome = "which is the champion" if str(known.version) == best else f"the champion is version {best or 'none yet'}"
    outcome = NO_CHAMPION.get(engines_agree, outcome) if str(known.version) != best else outcome
    return f"models:/{name}/{known.version} registered; {outcome}"


def is_updated_by(version: Any, config_key: str, valid_bleu: float) -> bool:
    """Whether a version is to carry the card and options of this configuration: its own, or a better one on valid."""
    return version.tags.get("config_key") == config_key or valid_bleu > float(version.tags.get("valid_bleu", "-inf"))


def versions(store: Store, name: str) -> list[Any]:
    """All versions of a registered model, the oldest first."""
    found = store.client.search_model_versions(f"name = '{name}'")
    return sorted(found, key=lambda one: int(one.version))


def version_of(store: Store, name: str, tags: Mapping[str, str]) -> Any | None:
    """The version that has these tags and whose files are there, if there is one."""
    from mlflow.exceptions import MlflowException

    for one in versions(store, name):
        if all(one.tags.get(key) == value for key, value in tags.items()):
            try:
                if store.client.get_run(one.run_id).info.lifecycle_stage == "active":
                    return one
            except MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":  # its row was deleted for good
                    raise
    return None


def upload(store: Store, run: TrackedRun, folder: Path, options: Mapping[str, int | float], card: str) -> None:
    """Log a model folder to a row as an MLflow model."""
    with tempfile.TemporaryDirectory() as scratch:
        served = Path(scratch) / ARTIFACT
        save(served, folder, options, card)
        store.client.log_artifacts(run.id, str(served), ARTIFACT)


def update_version(store: Store, version: Any, folder: Path, options: Mapping[str, int | float], card: str) -> None:
    """Give a version other options and another card; its weights stay where they are."""
    with tempfile.TemporaryDirectory() as scratch:
        served = Path(scratch) / ARTIFACT
        save(served, folder, options, card)
        for small in ("MLmodel", "README.md", "input_example.json", "serving_input_example.json"):
            store.client.log_artifact(version.run_id, str(served / small), ARTIFACT)
    store.client.update_model_version(version.name, version.version, card)


def create_version(store: Store, run: TrackedRun, name: str, card: str) -> Any:
    """Register the model of a run: the new version."""
    from mlflow.exceptions import MlflowException

    try:
        store.client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    return store.client.create_model_version(name, f"{run.info.artifact_uri}/{ARTIFACT}", run.id, description=card)


def choose_champion(store: Store, name: str, valid_sha256: str) -> str:
    """Give the alias to the version with the best valid_bleu on this validation data, of equal ones the older.

    Only versions whose engines agree are candidates (those of older projects have no such tag, and did). Where there
    is no candidate, the alias is taken from a version that is none, and the result is empty.
    """
    found = [one for one in versions(store, name) if one.tags.get("engines", "agree") == "agree"]
    candidates = [one for one in found if one.tags.get("valid_sha256") == valid_sha256]
    champion = store.client.get_registered_model(name).aliases.get(CHAMPION)
    if not candidates:
        if champion is not None and champion not in [str(one.version) for one in found]:
            store.client.delete_registered_model_alias(name, CHAMPION)
        return ""
    best = max(candidates, key=lambda one: (float(one.tags["valid_bleu"]), -int(one.version)))
    if str(best.version) != str(champion):
        store.client.set_registered_model_alias(name, CHAMPION, str(best.version))
    return str(best.version)


def save(target: Path, folder: Path, options: Mapping[str, int | float], card: str) -> None:
    """A model folder as an MLflow model: from code, with signature, example and the package it needs."""
    from mlflow import pyfunc
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema

    for noisy in ("mlflow.pyfunc", "mlflow.models"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    params = [
        ParamSpec(name, DataType.double if isinstance(value, float) else DataType.long, value)
        for name, value in options.items()
    ]
    pyfunc.save_model(
        target,
        python_model=str(Path(__file__).with_name("serving.py")),
        artifacts={"model": str(folder)},
        code_paths=[str(Path(__file__).parent.parent)],
        signature=ModelSignature(
            Schema([ColSpec(DataType.string)]), Schema([ColSpec(DataType.string)]), ParamSchema(params)
        ),
        input_example=([example(folder)], dict(options)),
        pip_requirements=[f"{package}=={version(package)}" for package in PACKAGES],
    )
    (target / "README.md").write_text(card, encoding="utf-8")


def example(folder: Path) -> str:
    """A line that the model's vocabulary can spell: its first whole words."""
    from transformer.text.vocabulary import Vocabulary
    from transformer.text.words import SPACE, join

    words = [subword for subword in Vocabulary.load(folder / "vocab.txt").subwords if subword.startswith(SPACE)]
    return join([word for word in words if len(word) > 1][:5]) or "1"
