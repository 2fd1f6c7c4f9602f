"""What a model folder contains.

model.json: format, sizes of the Transformer, languages, normal form, placeholders, lower-casing, how the model was
trained and, after the stage ship, its scores. Beside it are vocab.txt, bpe.codes, the weights for torch, and the export
for CTranslate2: model.bin, config.json and shared_vocabulary.json, with exported.sha256, the sums of all files and of
the weights they were made from. One of the two models may be absent. words.txt, which may be absent too: the words of
the source side of train, with their counts (text/word_counts.py).
`FORMAT` is the version of this layout.
"""

from __future__ import annotations

import json
from pathlib import Path
from reprlib import repr as shorten

from transformer.files import Mistake, sha256, write_text

FORMAT = 1
EXPORT, WEIGHTS = "model.bin", "weights.safetensors"  # the models that CTranslate2 and torch read
EXPORTED = "exported.sha256"  # as sha256sum writes it
EXPORT_FILES = (EXPORT, "config.json", "shared_vocabulary.json")
WORDS = "words.txt"
FILES = ("model.json", "vocab.txt", "bpe.codes", WORDS, WEIGHTS, *EXPORT_FILES, EXPORTED)
BINARY = (WEIGHTS, EXPORT)
LARGEST = 1 << 25  # bytes of each other file, which is read at once
POSITIONS = 4096  # rows of the position table in EXPORT: limits the length of a source and of a translation


KINDS = {  # what model.json must contain, beside its format
    "sizes": (dict, "an object"),
    "source": (str, "a text"),
    "target": (str, "a text"),
    "lowercase": (bool, "true or false"),
    "lowercase_source": (bool, "true or false"),
}


def check_files(folder: Path) -> None:
    """Raise Mistake if a file of a model folder is a device, a pipe or a folder, or too large to be read at once."""
    for path in (folder / name for name in FILES):
        if path.exists() and not path.is_file():
            raise Mistake(f"{path} is no regular file. Copy the model folder again.")
        if path.exists() and path.name not in BINARY and (size := path.stat().st_size) > LARGEST:
            raise Mistake(f"{path} has {size:,} bytes, more than {LARGEST:,}. Copy the model folder again.")


def files_of(folder: Path) -> list[Path]:
    """The files of a model folder that are there."""
    return [folder / name for name in FILES if (folder / name).is_file()]


def check_sums(folder: Path) -> None:
    """Raise Mistake if a file of a folder with an export is not as it was when the export was made."""
    path = folder / EXPORTED
    if not path.is_file() and not (folder / EXPORT).is_file():
        return
    recorded = path.read_bytes().decode(errors="replace").split("\n") if path.is_file() else []
    for file in (file for file in files_of(folder) if file != path):
        if f"{sha256(file)}  {file.name}" not in recorded:
            raise Mistake(
                f"{folder}: {file.name} is not the file that {EXPORTED} describes. Copy the whole folder again."
            )


def write_sums(folder: Path, weights: Path) -> None:
    """Write EXPORTED: the sums of the files of a folder with an export, and of the weights it was made from."""
    others = [file for file in files_of(folder) if file.name not in (WEIGHTS, EXPORTED)]
    write_text(folder / EXPORTED, "".join(f"{sha256(file)}  {file.name}\n" for file in (weights, *others)))


def read_model_json(path: Path) -> dict:
    """The contents of a model.json, whose sizes TransformerConfig.read checks.

    Raises Mistake if it is missing, has an unknown format or values of other types than KINDS, and as `check_files`
    for its folder.
    """
    check_files(path.parent)
    if not path.is_file():
        raise Mistake(f"{path} is missing. A model folder contains model.json, weights, vocab.txt and bpe.codes.")
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise Mistake(f"{path}: damaged ({error}). Copy the model folder again.") from None
    if not isinstance(description, dict):
        raise Mistake(f"{path}: damaged (it is no object). Copy the model folder again.")
    version = description.get("format")
    if version != FORMAT or isinstance(version, bool):
        raise Mistake(
            f"{path}: format {shorten(version)} is not {FORMAT}. Use the version that wrote it, or train again."
        )
    if missing := KINDS.keys() - description.keys():
        raise Mistake(f"{path}: damaged (no {', '.join(sorted(missing))}). Copy the model folder again.")
    for name, (kind, words) in KINDS.items():
        if not isinstance(description[name], kind):
            raise Mistake(
                f"{path}: damaged ({name}={shorten(description[name])} must be {words}). Copy the model folder again."
            )
    return description


def starting_model(init_from: str) -> Path | None:
    """The setting `init_from` to a model folder, or to None for recipes/random, which means random weights.

    Raises Mistake for anything else.
    """
    path = Path(init_from)
    if path == Path("recipes/random"):
        return None
    if not (path / "model.json").is_file():
        raise Mistake(
            f"init_from={init_from} is not a model folder: it has no model.json. "
            "Name a model folder, or recipes/random to start from random weights."
        )
    return path
