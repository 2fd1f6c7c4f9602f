"""MLflow's model registry: one version per model, its card, and the alias `champion`.

A model is uploaded once. Configurations that share it (other beam sizes, say) share its version, which carries the card
and the options of the one with the best valid_bleu. Versions with different validation data are not compared: the
champion has the best valid_bleu among the versions with the validation data of the newest registration. A version whose
exported models translate differently, or were not compared with it, never becomes champion (tag `engines`).
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock

from transformer.files import sha256
from transformer.tracking.model_card import CHAMPION
from transformer.tracking.run import TrackedRun
from transformer.tracking.store import Store, connect

Options = Mapping[str, int | float]

PACKAGES = ("mlflow", "numpy", "pandas", "safetensors", "spacy", "subword-nmt", "torch", "tqdm")  # to serve a model
ARTIFACT = "model"
ENGINES = {True: "agree", False: "differ", None: "not compared"}
NO_CHAMPION = {
    False: "It is not champion: data/ct2 does not translate as data/model does (see reports/engines.json).",
    None: "It is not champion: compare_engines has not measured it. Run `dvc repro compare_engines`, then "
    "`dvc repro --force --single-item record`.",
}


@dataclass(frozen=True)
class Candidate:
    """A scored configuration whose model is to be registered.

    name: the registered model, as in "toy-de-en". folder: the model folder. options: the beam_size, length_penalty and
    extra_length of the scores; a request that leaves one out is served with these. valid_sha256: of the validation
    data. card: Markdown, kept beside the model and as the version's description. engines_agree: whether the exported
    models translate as this one does; None: not compared.
    """

    name: str
    folder: Path
    options: Options
    config_key: str
    valid_bleu: float
    valid_sha256: str
    card: str
    engines_agree: bool | None


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
        number = put_version(store, run, candidate)
        champion = choose_champion(store, candidate.name, candidate.valid_sha256)
    uri = f"models:/{candidate.name}/{number}"
    store.client.set_tag(run.id, "model", uri)
    return f"Registered {uri}. {champion_message(number, champion, candidate.engines_agree)}"


def champion_message(number: str, champion: str, engines_agree: bool | None) -> str:
    """Whether version `number` is the champion, and if not, why, or which version is. champion: "" for none."""
    if number == champion:
        return "It is the champion."
    if engines_agree in NO_CHAMPION:
        return NO_CHAMPION[engines_agree]
    return f"The champion is version {champion}." if champion else "There is no champion yet."


def put_version(store: Store, run: TrackedRun, candidate: Candidate) -> str:
    """Create the version of a candidate's model, or update the one that exists; returns the number of the version."""
    name, config_key = candidate.name, candidate.config_key
    identity = {"model_sha256": sha256(candidate.folder), "valid_sha256": candidate.valid_sha256}
    scored = {"config_key": config_key, "valid_bleu": str(candidate.valid_bleu)}
    existing = find_version(store, name, identity)
    if existing is None:
        upload(store, run, candidate)
        existing = create_version(store, run, candidate)
    elif not is_updated_by(existing, candidate):
        scored = {}
    elif existing.tags.get("config_key") != config_key:
        update_version(store, existing, candidate)
    for key, value in {**identity, **scored, "engines": ENGINES[candidate.engines_agree]}.items():
        store.client.set_model_version_tag(name, str(existing.version), key, value)
    return str(existing.version)


def is_updated_by(existing: Any, candidate: Candidate) -> bool:
    """Whether a version takes the card and options of a candidate: the same configuration, or a better valid_bleu."""
    if existing.tags.get("config_key") == candidate.config_key:
        return True
    return candidate.valid_bleu > float(existing.tags.get("valid_bleu", "-inf"))


def versions(store: Store, name: str) -> list[Any]:
    """All versions of a registered model, the oldest first."""
    found = store.client.search_model_versions(f"name = '{name}'")
    return sorted(found, key=lambda one: int(one.version))


def find_version(store: Store, name: str, tags: Mapping[str, str]) -> Any | None:
    """The version with these tags whose run, which holds its files, is not deleted; None if there is none."""
    from mlflow.exceptions import MlflowException

    for one in versions(store, name):
        if all(one.tags.get(key) == value for key, value in tags.items()):
            try:
                if store.client.get_run(one.run_id).info.lifecycle_stage == "active":
                    return one
            except MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":  # the run was deleted for good
                    raise
    return None


def upload(store: Store, run: TrackedRun, candidate: Candidate) -> None:
    """Log a candidate's model folder to a run as an MLflow model."""
    with tempfile.TemporaryDirectory() as scratch:
        served = Path(scratch) / ARTIFACT
        save(served, candidate.folder, candidate.options, candidate.card)
        store.client.log_artifacts(run.id, str(served), ARTIFACT)


def update_version(store: Store, existing: Any, candidate: Candidate) -> None:
    """Replace the options and the card of a version; its weights are not uploaded again."""
    with tempfile.TemporaryDirectory() as scratch:
        served = Path(scratch) / ARTIFACT
        save(served, candidate.folder, candidate.options, candidate.card)
        for small in ("MLmodel", "README.md", "input_example.json", "serving_input_example.json"):
            store.client.log_artifact(existing.run_id, str(served / small), ARTIFACT)
    store.client.update_model_version(existing.name, existing.version, candidate.card)


def create_version(store: Store, run: TrackedRun, candidate: Candidate) -> Any:
    """Register the model that was uploaded to a run; returns the new version."""
    from mlflow.exceptions import MlflowException

    name, source = candidate.name, f"{run.info.artifact_uri}/{ARTIFACT}"
    try:
        store.client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    return store.client.create_model_version(name, source, run.id, description=candidate.card)


def choose_champion(store: Store, name: str, valid_sha256: str) -> str:
    """Give the alias to the version with the best valid_bleu on this validation data; returns its number.

    Of equal versions the older wins. Only versions whose engines agree are considered. Versions of older projects have
    no tag `engines`; their engines did agree. If no version qualifies, the result is empty, and a champion whose
    engines do not agree loses the alias.
    """
    agreeing = [one for one in versions(store, name) if one.tags.get("engines", "agree") == "agree"]
    comparable = [one for one in agreeing if one.tags.get("valid_sha256") == valid_sha256]
    champion = store.client.get_registered_model(name).aliases.get(CHAMPION)
    if not comparable:
        if champion is not None and champion not in [str(one.version) for one in agreeing]:
            store.client.delete_registered_model_alias(name, CHAMPION)
        return ""
    best = max(comparable, key=lambda one: (float(one.tags["valid_bleu"]), -int(one.version)))
    if str(best.version) != str(champion):
        store.client.set_registered_model_alias(name, CHAMPION, str(best.version))
    return str(best.version)


def save(target: Path, folder: Path, options: Options, card: str) -> None:
    """Save a model folder as an MLflow model: code, signature, example request, required packages and card."""
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
    """A line made of the first five whole words of the model's vocabulary."""
    from transformer.text.vocabulary import Vocabulary
    from transformer.text.words import SPACE, join

    words = [subword for subword in Vocabulary.load(folder / "vocab.txt").subwords if subword.startswith(SPACE)]
    return join([word for word in words if len(word) > 1][:5]) or "1"
