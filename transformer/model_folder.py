"""What a model folder contains.

model.json: format, sizes of the Transformer, languages, normal form, placeholders, lower-casing and how the model was
trained. Beside it are vocab.txt, bpe.codes, the weights for torch, and the export for CTranslate2: model.bin,
config.json, shared_vocabulary.json, and exported.sha256, the weights that it was made from. One of the two models may
be absent.
words.txt, which may be absent too: the words of the source side of train, lower-cased.
`FORMAT` is the version of this layout.
"""

from __future__ import annotations

import json
from pathlib import Path

FORMAT = 1
EXPORT, WEIGHTS = "model.bin", "weights.safetensors"  # the models that CTranslate2 and torch read
EXPORTED = "exported.sha256"  # as sha256sum writes it
WORDS = "words.txt"
FILES = (
    "model.json",
    "vocab.txt",
    "bpe.codes",
    WORDS,
    WEIGHTS,
    EXPORT,
    "config.json",
    "shared_vocabulary.json",
    EXPORTED,
)
POSITIONS = 4096  # rows of the position table in EXPORT: limits the length of a source and of a translation


def read_model_json(path: Path) -> dict:
    """The contents of a model.json. Raises ValueError for a missing file or an unknown format."""
    if not path.is_file():
        raise ValueError(f"{path} is missing. A model folder contains model.json, weights, vocab.txt and bpe.codes.")
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: damaged ({error}). Copy the model folder again.") from None
    version = description.get("format")
    if version != FORMAT:
        raise ValueError(f"{path}: format {version!r} is not {FORMAT}. Use the version that wrote it, or train again.")
    if missing := {"sizes", "source", "target", "lowercase", "lowercase_source"} - description.keys():
        raise ValueError(f"{path}: damaged (no {', '.join(sorted(missing))}). Copy the model folder again.")
    return description


def starting_model(init_from: str) -> Path | None:
    """The setting `init_from` to a model folder, or to None for recipes/random, which means random weights.

    Raises ValueError for anything else.
    """
    path = Path(init_from)
    if path == Path("recipes/random"):
        return None
    if not (path / "model.json").is_file():
        raise ValueError(
            f"init_from={init_from} is not a model folder: it has no model.json. "
            "Name a model folder, or recipes/random to start from random weights."
        )
    return path
