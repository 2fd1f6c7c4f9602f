"""The texts and tables that scores and pages are made from, read from files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from transformer.files import Mistake, UnreadableInput, read_json, read_lines


class Texts(NamedTuple):
    """The lines of a split, one per sentence. Each list has the same length."""

    sources: list[str]
    references: list[str]
    hypotheses: list[str]

    @classmethod
    def read(cls, raw: Path, hypotheses: Path, split: str) -> Texts:
        """Read a split (valid or a test set) from the folders of the corpus and of the translations.

        Raises UnreadableInput if a file is missing or not UTF-8, or if their numbers of lines differ.
        """
        files = raw / f"{split}.src", raw / f"{split}.tgt", hypotheses / f"{split}.hyp"
        texts = cls(*(read(path, lambda path: list(read_lines(path))) for path in files))
        for path, lines in zip(files, texts, strict=True):
            if len(lines) != len(texts.references):
                raise UnreadableInput(f"{path} has {len(lines):,} lines, but {files[1]} has {len(texts.references):,}.")
        return texts


def read(path: Path, reader: Callable[[Path], Any]) -> Any:
    """The result of `reader` for a file. Raises UnreadableInput if the file is missing or damaged."""
    if not path.exists():
        raise UnreadableInput(f"{path} is missing.")
    try:
        return reader(path)
    except UnreadableInput:
        raise
    except Mistake as error:
        raise UnreadableInput(f"{path} is damaged ({' '.join(str(error).split())}).") from None


def read_table(path: Path) -> dict[str, Any]:
    """The names and values in a JSON file. Raises Mistake if it has no JSON object."""
    values = read_json(path)
    if not isinstance(values, dict):
        raise Mistake(f"must be an object of names and values, not {type(values).__name__}")
    return values
