"""MLflow's model registry: a version for each run, with its model, search options and code, and with no pickle.

A person gives a version an alias, such as `champion`; docs/serving.md shows how.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import transformer
from pipeline.tracking.content import FinishedRun
from pipeline.tracking.store import Store, long_requests, store_errors
from pipeline.workflow.dvc_lock import Result
from pipeline.workflow.stage import corpus_name
from transformer.decoding.config import SEARCH_OPTIONS
from transformer.text.marks import SPACE, join
from transformer.text.vocabulary import Vocabulary

PACKAGE = Path(transformer.__path__[0])
# to serve a model
PACKAGES = ("ctranslate2", "mlflow", "numpy", "pandas", "regex", "safetensors", "spacy", "subword-nmt", "torch", "tqdm")
FOLDER = "artifacts/model"  # where MLflow puts the model folder inside the model
ENGINES = {True: "agree", False: "differ", None: "were not compared"}  # values of the tag `engines`
REGISTERED = "{source} to {target}. The newest version, not the best: `python -m pipeline serve models:/{name}`"
CARD = """# {name}, {valid_bleu:.1f} BLEU on valid

Translates {source} to {target}, one sentence per line, with an encoder-decoder Transformer.

    python -m pipeline serve models:/{name}

The model has learned from its training text only. Expect worse translations than the scores show for
text of other domains and for sentences much longer than those of the training text.
"""


def version_of(store: Store, run_id: str) -> Any | None:
    """The version of a registered model that has the model of a run, if there is one. Raises StoreError.

    One without a card is of a recording that was killed.
    """
    versions = store.client.search_model_versions(f"run_id = '{run_id}'")
    return next((version for version in versions if version.description), None)


def register_model(store: Store, result: Result, finished: FinishedRun, run_id: str) -> str:
    """Log the model of a result to its run, and register it; returns its address in MLflow. Raises StoreError."""
    from mlflow import pyfunc
    from mlflow.models import Model

    name = model_name(finished.params)
    options: dict[str, Any] = {option: finished.params[option] for option in SEARCH_OPTIONS}
    store.activate()
    with TemporaryDirectory() as scratch, long_requests():
        folder = Path(scratch) / "model"
        folder.mkdir()
        for file, path in result.folder("data/model").items():
            shutil.copyfile(path, folder / file)  # MLflow follows no links out of the folder
        origin = {"config_key": finished.config_key, "data": result.outs["data/raw"]}
        tags, parts = {"engines": ENGINES[result.engines_agree()]}, model_parts(folder, options)
        with store_errors():  # not pyfunc.log_model, which begins the run again and sets its end
            model = Model.log(
                artifact_path=None,
                flavor=pyfunc,
                name=name.replace(".", "_"),  # MLflow allows no full stop here
                run_id=run_id,
                registered_model_name=name,
                await_registration_for=0,
                metadata={**options, **origin},
                tags=tags,
                **parts,
            )
    number = str(model.registered_model_version)
    if not store.client.get_registered_model(name).description:  # else a person's, perhaps
        store.client.update_registered_model(name, REGISTERED.format(name=name, **finished.params))
    store.client.update_model_version(name, number, model_card(finished))
    return f"models:/{name}/{number}"


def model_parts(folder: Path, options: Mapping[str, int | float]) -> dict[str, Any]:
    """What MLflow's pyfunc saves of a model folder named "model": code, its packages, and an example request.

    options: the search options of a request that names none. MLflow makes the signature, which has them, of the types
    of `predict` and of the example, which it translates.
    """
    for noisy in ("mlflow.pyfunc", "mlflow.models"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    return {
        "python_model": str(PACKAGE / "serving/mlflow_model.py"),
        "artifacts": {"model": str(folder)},
        "code_paths": [str(PACKAGE)],
        "input_example": ([example(folder)], dict(options)),
        "pip_requirements": [f"{name}=={version(name)}" for name in PACKAGES],
    }


def example(folder: Path) -> str:
    """A line made of the first five whole words of the model's vocabulary."""
    words = [subword for subword in Vocabulary.load(folder / "vocab.txt").subwords if subword.startswith(SPACE)]
    return join([word for word in words if len(word) > 1][:5]) or "1"


def model_name(params: Mapping[str, Any]) -> str:
    """The name of the registered model, as in toy-de-en."""
    return re.sub(r"[^\w.-]", "_", f"{corpus_name(params)}-{params['source']}-{params['target']}")


def model_card(finished: FinishedRun) -> str:
    """The card of a registered model, in Markdown: use, limits, scores, data, origin and params."""
    params, tags = finished.params, finished.tags
    signed = {
        key: f"{value} {tags.get(f'signature_{key}', '')}".strip().replace("|", "\\|")
        for key, value in finished.scores.items()
    }
    data = {str(file["name"]): f"{file['lines']:,} lines, sha256 {file['sha256']}" for file in finished.datasets}
    origin = {"train_key": finished.train_key, "config_key": finished.config_key}
    origin |= {name: tag for name, tag in tags.items() if name.startswith(("recorded_at", "DVC_"))}
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
