"""A file with a table of sentences (.tsv, .csv, .json, .jsonl, .xlsx) to pairs of lines, by pandas."""

from __future__ import annotations

import csv
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import pandas as pd

from transformer.corpora.parallel_text import LinePair
from transformer.corpora.text_files import open_file, plain_name
from transformer.files import Mistake, probable_encoding
from transformer.text.languages import strip_region

ENDS = (".tsv", ".txt", ".csv", ".json", ".jsonl", ".xlsx")
SIDES = {"source", "src"}, {"target", "tgt", "trg"}
SEPARATORS = ";", "\t", ","  # of a .csv


@dataclass
class Table:
    """A table of sentences: each row has a source and a target.

    languages: codes of source and target. columns: the two columns, by name or by number from 1; empty: those that the
    header names by codes or names of the languages.
    """

    path: Path
    languages: tuple[str, str]
    columns: Sequence[str] = ()

    @property
    def names(self) -> tuple[str, str]:
        return str(self.path), str(self.path)

    def pairs(self) -> Iterator[LinePair]:
        """The source and the target of each row, as they stand there; what is missing is empty.

        Raises Mistake for a file that cannot be read, and for one whose columns are not clear.
        """
        rows = self._table[1].iloc[:, [*self.indices]]
        yield from ((text_of(source), text_of(target)) for source, target in rows.itertuples(index=False, name=None))

    def describe_columns(self) -> str:
        """Which columns are source and target, and the first pair, for people."""
        named = [f"column {index + 1} ({self._table[0][index]})" for index in self.indices]
        taken = " and ".join(f"{name} as {code}" for name, code in zip(named, self.languages, strict=True))
        full = (pair for pair in self.pairs() if all(map(str.strip, pair)))
        first = " = ".join(repr(text[:40]) for text in next(full, ()))
        return f"{taken}; the first pair: {first}"

    @property
    def _content(self) -> pd.DataFrame:
        """All rows, with the names of the columns if the format has them."""
        name = plain_name(self.path)
        plain = {"header": None, "dtype": str, "keep_default_na": False}
        lines = {**plain, "encoding": "utf-8-sig", "lineterminator": "\n"}
        try:
            with open_file(self.path) as file:
                encoding = probable_encoding(next(file, b""))
            remedy = f"Convert it: iconv -f {encoding} -t UTF-8 {self.path} >NEW"
            if encoding == "UTF-16":
                raise Mistake(f"{self.path}: UTF-16, not UTF-8. {remedy}")
            if name.endswith(".xlsx"):
                return pd.read_excel(self.path, **plain)
            if name.endswith((".json", ".jsonl")):
                with pd.option_context("future.infer_string", False):  # Arrow's strings refuse half a character
                    return pd.json_normalize(records(self.path))
            if name.endswith(".csv"):
                return pd.read_csv(self.path, sep=self._separator(), **lines)
            return pd.read_csv(self.path, sep="\t", quoting=csv.QUOTE_NONE, **lines)
        except UnicodeDecodeError as error:
            raise Mistake(f"{self.path}: not UTF-8 ({error.reason}). {remedy}") from None
        except (pd.errors.ParserError, pd.errors.EmptyDataError, csv.Error, EOFError, BadZipFile, zlib.error) as error:
            reason = " ".join(str(error).split()).removeprefix("Error tokenizing data. C error: ")
            raise Mistake(f"{self.path} is no table: {reason}. Correct the line, or quote its text.") from None

    def _separator(self) -> str:
        """What separates the columns of a .csv: by which the first line has the names asked for, or equally many."""
        with open_file(self.path) as file:
            lines = [line.decode("utf-8-sig", errors="replace").rstrip("\r\n") for line in islice(file, 20)]

        def fits(mark: str) -> tuple[bool, bool]:
            rows = [row for row in csv.reader(lines, delimiter=mark) if row] or [[]]
            return self._is_header(rows[0]), len(rows[0]) > 1 and len({len(row) for row in rows}) == 1

        return max(SEPARATORS, key=fits)

    def _is_header(self, first: Sequence[str]) -> bool:
        """Whether a first row has the names of the columns: those asked for, or the languages."""
        return self._find_columns(first) is not None or (bool(self.columns) and set(self.columns) <= set(first))

    def _find_columns(self, header: Iterable[Any]) -> tuple[int, int] | None:
        """The indices of the columns in which a header names the languages; None if it names none, or several."""
        words = [str(name).strip().casefold() for name in header]
        last = [word.rpartition(".")[2] for word in words]
        for parts in ([{word} for word in last], [words_of_name(word) for word in words]):
            indices = [
                [index for index, part in enumerate(parts) if part & side or any(map(known.__contains__, part))]
                for side, known in zip(SIDES, names_of_both(self.languages), strict=True)
            ]
            if all(len(of_side) == 1 for of_side in indices) and indices[0] != indices[1]:
                return indices[0][0], indices[1][0]
        return None

    @cached_property
    def _table(self) -> tuple[list[str], pd.DataFrame]:
        """The names of the columns and the rows. A first row is names if it has `columns`, or names the languages."""
        content = self._content
        if plain_name(self.path).endswith((".json", ".jsonl")):
            return [str(name) for name in content.columns], content
        first = [str(name).strip() for name in content.iloc[0]] if len(content) else []
        return (first, content.iloc[1:]) if self._is_header(first) else (["no name"] * len(first), content)

    @cached_property
    def indices(self) -> tuple[int, int]:
        """The indices of the columns of source and target, from 0. Raises Mistake if they are not clear."""
        header, rows = self._table
        if self.columns:
            source, target = (column_index(column, header) for column in self.columns)
            if source is not None and target is not None and source != target:
                return source, target
        elif (named := self._find_columns(header)) is not None:
            return named
        row = [text_of(value).strip()[:30] for value in rows.iloc[0]] if len(rows) else []
        shown = ", ".join(
            f"{number} {name}: {text!r}" for number, (name, text) in enumerate(zip(header, row, strict=False), 1)
        )
        raise Mistake(
            f"{self.path}: which columns are {' and '.join(self.languages)}? It has {shown[:400] or 'no rows'}. "
            "Name them: --columns SOURCE TARGET, by names or numbers."
        )


def words_of_name(name: str) -> set[str]:
    """The parts of a name of a column, such as text_en; no codes if it has spaces, and nothing of a sentence."""
    parts = re.split(r"[\W_]+", name)
    if " " not in name:
        return set(parts)
    return {part for part in parts if len(part) > 3} if len(parts) <= 3 and name[-1].isalnum() else set()


class LanguageNames:
    """The codes and names of a language: hau, ha_NG and Hausa are of ha, and Haussa is, if the other language is de."""

    def __init__(self, language: str, both: tuple[str, str]):
        from babel import Locale, UnknownLocaleError  # imported here, since few files need it

        self.code, self.words = strip_region(language), set[str]()
        for named_in in ("en", *map(strip_region, both)):
            with suppress(UnknownLocaleError, ValueError):  # CLDR has no texts in this language
                self.words.add((Locale(named_in).languages.get(self.code) or "").casefold())

    def __contains__(self, word: str) -> bool:
        return bool(word) and (word in self.words or strip_region(word.replace("_", "-")) == self.code)


@cache
def names_of_both(languages: tuple[str, str]) -> tuple[LanguageNames, LanguageNames]:
    """The names of source and target."""
    source, target = languages
    return LanguageNames(source, languages), LanguageNames(target, languages)


def column_index(column: str, header: Sequence[str]) -> int | None:
    """The index of a column, from 0, by its name or its number from 1."""
    if column in header:
        return header.index(column)
    return int(column) - 1 if column.isdecimal() and 1 <= int(column) <= len(header) else None


def records(path: Path) -> list[dict[str, Any]]:
    """The objects in a .json (a list of them, or an object a line) or in a .jsonl. Raises Mistake with the place."""
    with open_file(path) as file:
        text = b"".join(file).decode("utf-8-sig")
    try:
        content = json.loads(text)
    except ValueError:
        content = []
        for number, line in enumerate(text.split("\n"), start=1):
            try:
                content += [json.loads(line)] if line.strip() else []
            except ValueError as error:
                raise Mistake(f"{path}:{number}: not JSON ({error}). Correct it.") from None
    if isinstance(content, dict):  # {"data": [...]}, or a single object
        lists = {name: value for name, value in content.items() if isinstance(value, list)}
        if len(lists) > 1:
            raise Mistake(f"{path} has the lists {', '.join(lists)}. Write each into a file of its own.")
        content = next(iter(lists.values()), [content])
    if not isinstance(content, list):
        raise Mistake(
            f"{path}: {str(content)[:40]!r} is no list. Write a list of objects with a text in each language."
        )
    if wrong := next((value for value in content if not isinstance(value, dict)), None):
        raise Mistake(f"{path}: {str(wrong)[:40]!r} is no object. Write objects with a text in each language.")
    return content


def text_of(value: Any) -> str:
    """A value of a table as text; what is no text, such as a missing value, is empty."""
    return value if isinstance(value, str) else ""
