"""The files of a registered model: an MLflow model that consists of code, text and weights, with no pickle."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import transformer

Options = Mapping[str, int | float]

PACKAGE = Path(transformer.__path__[0])
# to serve a model
PACKAGES = ("ctranslate2", "mlflow", "numpy", "pandas", "regex", "safetensors", "spacy", "subword-nmt", "torch", "tqdm")
FOLDER = "artifacts/model"  # where MLflow puts the model folder inside the model


def save(target: Path, folder: Path, options: Options, package: Path = PACKAGE) -> None:
    """Save a model folder as an MLflow model in the folder `target`, with code, signature and an example request.

    folder: the model folder, named "model". options: the search options of a request that names none. package: the code
    to serve it with. MLflow makes the signature of the types of `predict` and of the example, which it translates.
    """
    from mlflow import pyfunc

    for noisy in ("mlflow.pyfunc", "mlflow.models"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    pyfunc.save_model(
        target,
        python_model=str(package / "serving/mlflow_model.py"),
        artifacts={"model": str(folder)},
        code_paths=[str(package)],
        input_example=([example(folder)], dict(options)),
        pip_requirements=[f"{name}=={version(name)}" for name in PACKAGES],
    )


def example(folder: Path) -> str:
    """A line made of the first five whole words of the model's vocabulary."""
    from transformer.text.marks import SPACE, join
    from transformer.text.vocabulary import Vocabulary

    words = [subword for subword in Vocabulary.load(folder / "vocab.txt").subwords if subword.startswith(SPACE)]
    return join([word for word in words if len(word) > 1][:5]) or "1"
