"""Texts of a file that a model is to translate."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from transformer.text.languages import strip_region


class Entry(NamedTuple):
    """A text to translate. fill: takes its translation."""

    text: str
    fill: Callable[[str], None]


class Document(NamedTuple):
    """A file to translate. skipped: entries that are left out, since they have elements inside their text.

    write: writes the file, with the translations that its entries got, to a path.
    """

    entries: list[Entry]
    write: Callable[[Path], None]
    skipped: int = 0


def lines_of(entries: Iterable[Entry]) -> list[str]:
    """The lines to translate, without the white space around them and without blank ones."""
    return [core for entry in entries for line in entry.text.split("\n") if (core := line.strip())]


def fill(entries: Iterable[Entry], translations: Iterable[str]) -> None:
    """Give entries the translations of their lines, in the order of `lines_of`."""
    waiting = iter(translations)

    def translated(line: str) -> str:
        core = line.strip()
        return line.replace(core, next(waiting), 1) if core else line

    for entry in entries:
        entry.fill("\n".join(map(translated, entry.text.split("\n"))))


def check_languages(path: Path, codes: tuple[str | None, str | None], languages: tuple[str, str]) -> None:
    """Raise ValueError if a file names other languages than those of the model, whatever their regions."""
    for code, own in zip(codes, languages, strict=True):
        if code and strip_region(code) != strip_region(own):
            raise ValueError(
                f"{path} is for {code}, and this model translates {' to '.join(languages)}. Nothing was translated. "
                "Use another model, or correct the language in the file."
            )
