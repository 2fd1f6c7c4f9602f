"""The files of a registered model: an MLflow model that consists of code, text and weights, with no pickle."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import transformer
from transformer.files import sha256, sha256_text

Options = Mapping[str, int | float]

PACKAGE = Path(transformer.__path__[0])
# to serve a model
PACKAGES = ("ctranslate2", "mlflow", "numpy", "pandas", "regex", "safetensors", "spacy", "subword-nmt", "torch", "tqdm")
FOLDER = "artifacts/model"  # where MLflow puts the model folder inside the model


def code_files(package: Path) -> dict[str, Path]:
    """The Python files of the package: path below the package -> file."""
    return {path.relative_to(package).as_posix(): path for path in sorted(package.rglob("*.py"))}


def code_sha256() -> str:
    """A hash of the code that a model of this version of the package contains."""
    return sha256_text("".join(f"{sha256(path)}  {name}\n" for name, path in code_files(PACKAGE).items()))


def save(target: Path, folder: Path, options: Options, package: Path = PACKAGE) -> None:
    """Save a model folder as an MLflow model in the folder `target`, with code, signature and an example request.

    folder: the model folder, named "model". options: the search options of a request that names none. package: the code
    to serve it with.
    """
    from mlflow import pyfunc
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema

    for noisy in ("mlflow.pyfunc", "mlflow.models"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    params = [
        ParamSpec(name, DataType.double if isinstance(value, float) else DataType.long, value)
        for name, value in options.items()
    ]
    lines = Schema([ColSpec(DataType.string)])
    pyfunc.save_model(
        target,
        python_model=str(package / "serving/served_translator.py"),
        artifacts={"model": str(folder)},
        code_paths=[str(package)],
        signature=ModelSignature(lines, lines, ParamSchema(params)),
        input_example=([example(folder)], dict(options)),
        pip_requirements=[f"{name}=={version(name)}" for name in PACKAGES],
    )


def example(folder: Path) -> str:
    """A line made of the first five whole words of the model's vocabulary."""
    from transformer.text.marks import SPACE, join
    from transformer.text.vocabulary import Vocabulary

    words = [subword for subword in Vocabulary.load(folder / "vocab.txt").subwords if subword.startswith(SPACE)]
    return join([word for word in words if len(word) > 1][:5]) or "1"
