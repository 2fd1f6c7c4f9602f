"""The lines of a split that stages compare: sources, references and hypotheses."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pipeline.stage import read
from transformer.files import read_lines


class Texts(NamedTuple):
    """The lines of a split, one per sentence. Each list has the same length."""

    sources: list[str]
    references: list[str]
    hypotheses: list[str]

    @classmethod
    def of(cls, raw: Path, hypotheses: Path, split: str) -> Texts:
        """Read a split (valid or a test set) from the folders of the corpus and of the translations.

        Raises ValueError if a file is missing or not UTF-8, or if their numbers of lines differ.
        """
        files = raw / f"{split}.src", raw / f"{split}.tgt", hypotheses / f"{split}.hyp"
        found = cls(*(read(path, lambda path: list(read_lines(path))) for path in files))
        for path, lines in zip(files, found, strict=True):
            if len(lines) != len(found.references):
                counts = f"{len(lines):,} lines, but {files[1]} has {len(found.references):,}"
                raise ValueError(f"{path} has {counts}. Nothing was written. Run `dvc repro`.")
        return found
