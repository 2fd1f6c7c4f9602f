"""Files and folders that are written completely or not at all, lines of text files, and checksums."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

Item = TypeVar("Item")
BLOCK_LINES = 20_000  # of a block, whatever the number of processes that read blocks


@contextmanager
def whole_file(path: Path, durable: bool = False) -> Iterator[Path]:
    """Yield a temporary path to write. It is renamed to `path` when the block succeeds, and removed when it raises.

    durable: flush file and folder to the disk around the rename, so that a power cut leaves the old or the new file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    try:
        yield temporary
        if durable:
            _sync(temporary)
        os.replace(temporary, path)
        if durable:
            _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8, completely or not at all."""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, contents: Any) -> None:
    """Write a JSON file, one value a line, completely or not at all."""
    write_text(path, json.dumps(contents, indent=1, ensure_ascii=False) + "\n")


def copy_file(source: Path, target: Path) -> None:
    """Copy a file, completely or not at all."""
    with whole_file(target) as temporary:
        shutil.copyfile(source, temporary)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield a new temporary folder to fill. It replaces the folder `path` when the block succeeds."""
    temporary = path.with_name(path.name + ".tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        if path.exists():
            shutil.rmtree(path)
        os.replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _sync(path: Path) -> None:
    """Flush a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, without their line feed. Only \\n ends a line: \\r, \\x85 or U+2028 do not."""
    with open(path, encoding="utf-8", newline="\n") as file:
        for line in file:
            yield line.removesuffix("\n")


class Block(NamedTuple):
    """Some consecutive lines of parallel files, which another process can read by itself."""

    first: int  # number of the first line, from 1
    count: int  # lines
    spans: tuple[tuple[Path, int, int], ...]  # of each file: path, and where the lines start and end, in bytes

    def bytes(self) -> list[bytes]:
        """The lines of each file as they are on the disk."""
        found = []
        for path, start, end in self.spans:
            with open(path, "rb") as file:
                file.seek(start)
                found.append(file.read(end - start))
        return found

    def lines(self) -> list[list[str]]:
        """The lines of each file, without their line feed."""
        return [text.decode("utf-8").removesuffix("\n").split("\n") for text in self.bytes()]


def blocks(*paths: Path, size: int = BLOCK_LINES) -> Iterator[Block]:
    """Parallel files, of equally many lines that end in \n, to blocks of `size` lines. The last may have fewer."""
    with ExitStack() as stack:
        files = [stack.enter_context(open(path, "rb")) for path in paths]
        starts, first = [0] * len(files), 1
        while True:
            sizes = [[len(line) for line in islice(file, size)] for file in files]
            assert len({len(found) for found in sizes}) == 1, "the files have unequal numbers of lines"
            if not (count := len(sizes[0])):
                return
            ends = [start + sum(found) for start, found in zip(starts, sizes, strict=True)]
            yield Block(first, count, tuple(zip(paths, starts, ends, strict=True)))
            starts, first = ends, first + count


def chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield lists of `size` consecutive items; the last one may have fewer."""
    remaining = iter(items)
    while chunk := list(islice(remaining, size)):
        yield chunk


def write_lines(path: Path, lines: Iterable[str], durable: bool = False) -> int:
    """Write lines, each ended by \\n, completely or not at all, and return how many. A line must not contain \\n.

    durable: see whole_file.
    """
    count = 0
    with whole_file(path, durable) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        for count, line in enumerate(lines, start=1):  # noqa: B007 (the last number is the result)
            assert "\n" not in line
            file.write(line + "\n")
    return count


def sha256(path: Path) -> str:
    """Hexadecimal sha256 of a file. Of a folder: the sha256 of the sorted list of its files with their sha256."""
    if path.is_dir():
        names = sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())
        return sha256_text("".join(f"{sha256(path / name)}  {name}\n" for name in names))
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_text(text: str) -> str:
    """Hexadecimal sha256 of a string in UTF-8."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
