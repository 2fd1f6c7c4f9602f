"""Manifests, corpora/<corpus>.json: where the files of a corpus are, their checksums, and which text is in which."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from transformer.corpora.archives import open_member
from transformer.corpora.fetching import Download
from transformer.corpora.markup import segments, text_lines
from transformer.corpora.parallel_text import ParallelText, TwoFiles
from transformer.corpora.text_files import Lines, open_file
from transformer.credentials import check_address
from transformer.files import Mistake

SIDES = ("source", "target")
Entry = Mapping[str, Any]


class NoChecksum(Mistake):
    """A manifest has no checksum of a file, so the file cannot be trusted."""


def check_shape(content: Any) -> None:
    """Raise Mistake for what is no manifest: its parts and their parts must be of the right types."""
    if not (isinstance(content, dict) and {"bases", "files", "splits"} <= content.keys()):
        raise Mistake("it must have bases, files and splits")
    kinds = {"bases": list, "files": dict, "splits": dict}
    parts = [content[name] for name in kinds]
    if not all(map(isinstance, parts, kinds.values())):
        raise Mistake("bases must be a list, files and splits objects")
    for entry in parts[1].values():
        if not (isinstance(entry, dict) and {"addresses", "size", "sha256"} <= entry.keys()):
            raise Mistake("each file must be an object with addresses, size and sha256")
        if (other := entry.get("fallback")) is not None and (other not in parts[1] or parts[1][other] is entry):
            raise Mistake("fallback must name another of the files")
        if not (isinstance(entry["addresses"], list) and all(isinstance(each, str) for each in entry["addresses"])):
            raise Mistake("addresses must be a list of texts")
    sides = [side for split in parts[2].values() for side in (split.values() if isinstance(split, dict) else [None])]
    for part in (part for side in sides for part in (side if isinstance(side, list) else [None])):
        if not (isinstance(part, dict) and isinstance(part.get("file"), str) and part["file"] in parts[1]):
            raise Mistake("each split must be an object of lists of parts, each with one of the files")


@dataclass(frozen=True)
class Manifest:
    """A manifest.

    content: of the file. bases: the parts of addresses that a mirror replaces. files: name -> addresses, size,
    sha256, md5, and fallback: another file with the same texts. splits: train, valid or a test set -> language, or
    language.source and language.target -> parts: file, member (of an archive), format (text, ted: lines among lines of
    tags, seg: XML or SGML) and number of lines.
    """

    path: Path
    content: dict[str, Any]

    @classmethod
    def load(cls, path: Path) -> Manifest:
        """Read a manifest. Raises Mistake if it is missing or no manifest."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            check_shape(content)
            return cls(path, content)
        except OSError as error:
            raise Mistake(f"{path}: cannot read the manifest ({error.strerror}).") from None
        except (Mistake, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
            raise Mistake(f"{path} is no manifest ({error}). `git checkout {path}` restores it.") from None

    def test_sets(self, source: str, target: str) -> list[str]:
        """The test sets that have both languages."""
        return [
            name
            for name in self.content["splits"]
            if name not in ("train", "valid")
            and all(self._parts(name, *side) for side in ((source, "source"), (target, "target")))
        ]

    def parts(self, split: str, source: str, target: str) -> list[tuple[Entry, Entry]]:
        """The parts of a split, for source and target. Raises Mistake if it has not both languages."""
        pair = [self._parts(split, language, side) for language, side in zip((source, target), SIDES, strict=True)]
        if split not in self.content["splits"] or not all(pair):
            sets = ", ".join(self.test_sets(source, target))
            languages = sorted({key.partition(".")[0] for key in self.content["splits"]["train"]})
            if not {source, target} <= set(languages):
                raise Mistake(
                    f"{self.path}: {source}-{target} is not in this corpus; set source and target to two "
                    f"of {', '.join(languages)}."
                )
            raise Mistake(f"{self.path}: no test set {split} in {source} and {target}; test_sets may name {sets}.")
        return list(zip(*pair, strict=True))

    def _parts(self, split: str, language: str, side: str) -> list[Entry]:
        texts = self.content["splits"].get(split, {})
        return texts.get(f"{language}.{side}", texts.get(language, []))

    def downloads(self, splits: Iterable[str], source: str, target: str) -> dict[str, Download]:
        """The files of some splits, to be fetched: name in the splits -> download.

        Raises Mistake if a split has not both languages, NoChecksum if the manifest has no checksum of a file.
        """
        files = self.content["files"]
        names = {part["file"] for split in splits for pair in self.parts(split, source, target) for part in pair}
        chosen = {}
        for name in sorted(names):
            other = files[name].get("fallback", name)
            chosen[name] = name if files[name]["sha256"] or not files[other]["sha256"] else other
        missing = sorted(name for name in chosen.values() if not files[name]["sha256"])
        if missing:
            raise NoChecksum(f"{self.path} has no sha256 of {', '.join(missing)}.")
        return {name: self.download(file) for name, file in chosen.items()}

    def download(self, name: str) -> Download:
        """A file of this corpus, to be fetched from CORPUS_MIRROR if that is set."""
        entry = self.content["files"][name]
        addresses = tuple(url for address in entry["addresses"] for url in self._urls(address))
        other = entry.get("fallback")
        instead = self.download(other) if other and self.content["files"][other]["sha256"] else None
        return Download(name, addresses, entry["size"], entry["sha256"], entry.get("md5"), instead)

    def _urls(self, address: str) -> Iterator[str]:
        """Where a file may be: its address, or the addresses of a mirror that stand for it."""
        mirror = os.environ.get("CORPUS_MIRROR")
        if not mirror:
            yield check_address(address, str(self.path))
            return
        check_address(mirror, "CORPUS_MIRROR")
        mirror = mirror.rstrip("/") if "://" in mirror else str(Path(mirror).absolute())
        if len(self.content["bases"]) > 1:
            parts = urlsplit(address)
            yield f"{mirror}/{parts.netloc}{parts.path}"
        base = next((base for base in self.content["bases"] if address.startswith(f"{base}/")), "")
        yield f"{mirror}/{address.removeprefix(f'{base}/')}"

    def texts(self, split: str, source: str, target: str, paths: Mapping[str, Path]) -> list[ParallelText]:
        """The texts of a split. paths: file name -> where it was fetched to."""
        return [
            TwoFiles(*(lines(part, paths[part["file"]]) for part in pair)) for pair in self.parts(split, source, target)
        ]


def lines(part: Entry, path: Path) -> Lines:
    """The lines of a part of a split."""
    name = part.get("member") or Path(part["file"]).name
    opened: Callable[[], AbstractContextManager[Iterable[bytes]]]
    opened = partial(open_member, path, part["member"]) if "member" in part else partial(open_file, path)
    parse = {"text": None, "ted": text_lines, "seg": segments}[part.get("format", "text")]
    parsed = opened if parse is None else partial(parse_lines, opened, parse, name)
    return Lines(name, parsed, expected=part.get("lines"))


@contextmanager
def parse_lines(
    opened: Callable[[], AbstractContextManager[Iterable[bytes]]], parse: Callable, name: str
) -> Iterator[Any]:
    """The lines that a parser finds in a file, whose name is for its messages."""
    with opened() as file:
        yield parse(file, name)
