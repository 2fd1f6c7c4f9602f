"""Pairs of lines from two parallel files, or from one file of pairs: tab-separated, or JSON lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from shlex import quote
from typing import Any, Protocol

from transformer.corpora.catalogues import ENDS, Catalogue
from transformer.corpora.text_files import Lines, check_counts, lines_of, open_file, plain_name
from transformer.files import Mistake
from transformer.text.characters import half_character
from transformer.text.formats import START, TO_PAIRS, format_of_start
from transformer.text.languages import strip_region

LinePair = tuple[str, str]
REMOVE = "Its pairs would be there twice; remove one, or give it another name."
VALID = ("validation", "dev", "val", "devtest")  # other names of valid


class ParallelText(Protocol):
    """A text in two languages."""

    @property
    def names(self) -> tuple[str, str]:
        """The names of its source and its target file, for messages."""
        ...

    def pairs(self) -> Iterator[LinePair]:
        """Its source and target lines, in order. Raises Mistake with file and line for text that cannot be used."""
        ...


@dataclass
class TwoFiles:
    """Line n of one file translates line n of the other."""

    source: Lines
    target: Lines

    @property
    def names(self) -> tuple[str, str]:
        return self.source.name, self.target.name

    def pairs(self) -> Iterator[LinePair]:
        for source, target in zip_longest(self.source, self.target):
            if source is not None and target is not None:
                yield source, target
        check_counts(self.source, self.target)


@dataclass
class OneFile:
    """A file with a pair a line. languages: codes of source and target.

    name.de-en.tsv: the German and the English line, separated by a tab. name.jsonl: an object a line with the codes of
    the languages as keys, or such an object under the key "translation".
    """

    path: Path
    languages: tuple[str, str]

    @property
    def names(self) -> tuple[str, str]:
        return str(self.path), str(self.path)

    def pairs(self) -> Iterator[LinePair]:
        raw = _Raw(str(self.path), lambda: open_file(self.path))
        split = self._tsv if plain_name(self.path).endswith(".tsv") else self._json
        for line in raw:
            source, target = split(line, f"{self.path}:{raw.count}")
            if raw.count == 1 and split == self._tsv and self._is_header(source, target):
                print(f"remark: {self.path}:1: left out, since {line!r} is a header and no pair", file=sys.stderr)
                continue
            yield " ".join(source.split()), " ".join(target.split())

    def _is_header(self, *columns: str) -> bool:
        """Whether the columns of the first line name the languages: their codes, or source and target."""
        codes = {strip_region(code) for code in self.languages}
        names = {strip_region(column.strip().strip("\"'")) for column in columns}
        return names in (codes, {"source", "target"}, {"src", "tgt"})

    def _tsv(self, line: str, position: str) -> LinePair:
        """The pair of a line with one tab."""
        columns = line.split("\t")
        if len(columns) != 2:
            raise Mistake(f"{position}: {len(columns)} columns, must be 2: a source and a target, with a tab between.")
        straight = plain_name(self.path).endswith(f".{'-'.join(self.languages)}.tsv".lower())
        return (columns[0], columns[1]) if straight else (columns[1], columns[0])

    def _json(self, line: str, position: str) -> LinePair:
        """The pair of a line of JSON."""
        try:
            value: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise Mistake(f"{position}: not JSON ({error}). Write an object with the keys of both languages.") from None
        value = value.get("translation", value) if isinstance(value, dict) else value
        source, target = map(value.get, self.languages) if isinstance(value, dict) else (None, None)
        if not isinstance(source, str) or not isinstance(target, str):
            has = f"Its keys are {str([*value])[1:-1][:100]}" if isinstance(value, dict) else "It has no object"
            raise Mistake(f"{position}: no object with the texts {' and '.join(self.languages)}. {has}.")
        if any("\0" in text or half_character(text) for text in (source, target)):
            raise Mistake(f"{position}: a NUL character or half a character in a text. Remove it.")
        return source, target


class _Raw(Lines):
    """Lines whose white space stays as it is, for files in which a tab has a meaning."""

    def _check(self, line: bytes) -> str:
        super()._check(line)  # for its errors
        return line.decode("utf-8").removeprefix("\ufeff" if self.count == 1 else "").removesuffix("\r")


def check_format(path: Path) -> None:
    """Raise Mistake for a file whose ending or first bytes say a format that is not read, with how to convert it."""
    ending = Path(plain_name(path)).suffix
    if ending in (*ENDS, ".json", ".xlsx", ".xlsm"):
        return
    if ending not in TO_PAIRS:
        with open_file(path) as file:
            ending = format_of_start(b"".join(islice(file, 9))[:START])
    if ending:
        remedy = TO_PAIRS[ending].format(quote(str(path)))
        raise Mistake(f"{path} cannot be read. Convert it, and move it away: {remedy}")


def user_texts(folder: Path, split: str, source: str, target: str) -> list[ParallelText]:
    """The texts of a split in a folder, in the order of their names. For train all that begin with `train`.

    They are NAME.{source,target}; NAME.{source}-{target}.tsv, NAME.jsonl or NAME with one of
    catalogues.ENDS; also with .gz; and the catalogues in a folder with the name of the split. Raises Mistake
    for one side without the other, and for a text that is there twice: plain and compressed, or in two of these forms.
    """
    languages, stem_of_split = (source, target), split.lower()
    source, target = source.lower(), target.lower()
    ends = (f".{source}-{target}.tsv", f".{target}-{source}.tsv", ".jsonl", *ENDS)
    texts: dict[str, ParallelText] = {}
    sides: dict[str, dict[str, Path]] = {}
    seen: dict[str, Path] = {}  # plain name -> file
    single: dict[str, Path] = {}  # name of a text -> the one file with both of its sides
    start = "train" if split == "train" else f"{split.lower()}."
    for path in (path for path in sorted(folder.glob("*")) if path.is_file() and path.name.lower().startswith(start)):
        check_format(path)
        name = plain_name(path)
        stem, _, suffix = name.rpartition(".")
        if suffix in (source, target) and (split == "train" or stem == stem_of_split):
            sides.setdefault(stem, {})[suffix] = path
        elif name.endswith(ends) and (split == "train" or name in [f"{stem_of_split}{end}" for end in ends]):
            texts[name] = (Catalogue if name.endswith(ENDS) else OneFile)(path, languages)
            stem = next(name.removesuffix(end) for end in ends if name.endswith(end))
            if stem in single and name not in seen:
                raise Mistake(f"{single[stem]} and {path} are both text {stem}. {REMOVE}")
            single[stem] = path
        else:
            continue
        if name in seen:
            raise Mistake(f"{seen[name]} and {path} are both {name}. {REMOVE}")
        seen[name] = path
    for stem, files in sides.items():
        if missing := {source, target} - files.keys():
            raise Mistake(
                f"{folder / stem}.{missing.pop()} is missing, the other side of {next(iter(files.values()))}."
            )
        if stem in single:
            raise Mistake(f"{single[stem]} and {files[source]} are both text {stem}. {REMOVE}")
        texts[f"{stem}.{source}"] = TwoFiles(lines_of(files[source]), lines_of(files[target]))
    for path in (path for path in (folder / split).glob("*") if plain_name(path).endswith(ENDS)):
        texts[f"{split}/{path.name}"] = Catalogue(path, languages)
    return [texts[name] for name in sorted(texts)]


def user_splits(folder: Path, splits: Iterable[str], source: str, target: str) -> dict[str, list[ParallelText]]:
    """The texts of each split in a folder. Raises Mistake for a split that has none, with those that are there.

    If none has the name valid, those of the first other name in VALID that is no split are the texts of valid.
    """
    if not folder.is_dir():
        raise Mistake(f"{folder} is no folder. Name the one with the files of train, valid and the test sets.")
    splits = list(splits)
    by_split = {split: user_texts(folder, split, source, target) for split in splits}
    for name in (name for name in VALID if name not in splits and not by_split.get("valid", True)):
        by_split["valid"] = user_texts(folder, name, source, target)
        if names := [*dict.fromkeys(Path(name).name for text in by_split["valid"] for name in text.names)]:
            used = " and ".join(names[:2]) + (" and more" if names[2:] else "")
            print(f"{folder} has no text named valid: {used} took its place", file=sys.stderr)
    for split, texts in by_split.items():
        if not texts:
            there = sorted(path.name for path in folder.glob("*"))
            has = f"It has {', '.join(there[:12])}{' and more' if there[12:] else ''}" if there else "It has no files"
            raise Mistake(
                f"{folder} has no text of {split}: {split}.{source} and {split}.{target}, or {split}.{source}-{target}"
                f".tsv, or {split}.jsonl, or catalogues in {split}/; also with .gz. {has}. corpus names "
                "the folder, test_sets its test sets. The built-in corpus is corpora/toy."
            )
    return by_split
