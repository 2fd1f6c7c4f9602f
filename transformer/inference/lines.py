"""Lines of text into and out of a program: input that is read once, output that appears whole, parts that are kept."""

from __future__ import annotations

import fcntl
import gzip
import os
import shutil
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import cast

from transformer.files import Mistake, check_length, chunks, decode_line, disk_of, sha256_text, whole_file

PART_LINES = 1000  # most lines that are translated in one call, sorted and batched together
READ_BYTES = 1 << 20  # most bytes that are read at a time
LONGEST_LINE = 100_000  # bytes
PACKED = {".zst": "zstd -dc", ".xz": "xz -dc"}  # how to unpack

Translate = Callable[[int, list[str]], str]  # the number of the first line, from 1, and lines -> what is written


@contextmanager
def open_input(path: Path | None) -> Iterator[BufferedReader]:
    """The bytes of a file, decompressed if its name ends in .gz, or of standard input if `path` is None.

    Raises Mistake if standard input is closed, and for a packed file of another kind.
    """
    if path is None:
        if sys.stdin is None:
            raise Mistake("There is no input: standard input is closed. Use --input FILE.")
        yield cast("BufferedReader", sys.stdin.buffer)
        return
    if path.suffix in PACKED:
        raise Mistake(f"{path} is compressed. Type `{PACKED[path.suffix]} {path} | python -m transformer MODEL`.")
    with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
        yield cast("BufferedReader", file)


def count_lines(path: Path | None) -> int | None:
    """The number of lines of a file; None if it can be read only once, or has another size when it is decompressed."""
    if path is None or path.suffix == ".gz" or not path.is_file():
        return None
    with open(path, "rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(READ_BYTES), b""))


def line_groups(file: BufferedReader, name: str) -> Iterator[list[str]]:
    """Yield the lines of a file, in groups that are there without waiting for more; only a line feed ends a line.

    A group has PART_LINES lines at most. Raises Mistake for a line that is not UTF-8 or longer than LONGEST_LINE,
    and for a damaged .gz file. name: of the file, for this.
    """
    count, rest = 0, b""
    try:
        while data := file.read1(READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            for group in chunks(lines, PART_LINES):
                yield [decoded(line, name, number) for number, line in enumerate(group, start=count + 1)]
                count += len(group)
            check_length(rest, f"{name}:{count + 1}", LONGEST_LINE)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Mistake(f"{name} is damaged after line {count} ({error}). Copy it again.") from None
    if rest:
        yield [decoded(rest, name, count + 1)]


def decoded(line: bytes, name: str, number: int) -> str:
    """The text of a line of a file, without the byte-order mark of the first line.

    Raises Mistake as `decode_line` does, and for a CR inside.
    """
    text = decode_line(line, name, number, LONGEST_LINE)
    if "\r" in text.rstrip("\r"):
        raise Mistake(f"{name}:{number}: a carriage return inside a line. Convert the line ends: tr '\\r' '\\n'")
    return text.removeprefix("\ufeff") if number == 1 else text


def replaceable(path: Path) -> Path | None:
    """The regular file that a path leads to, by its links; None for a device or a pipe.

    Raises Mistake for a file that is open as /dev/stdout: a new one would take its place.
    """
    if path.is_file() and str(path).startswith(("/dev/", "/proc/")):
        raise Mistake(f"{path} leads to a file. Nothing was translated. Leave out --output, or name the file.")
    return None if path.exists() and not path.is_file() else Path(os.path.realpath(path))


def write_through(path: Path | None, groups: Iterable[list[str]], translate: Translate) -> None:
    """Write the translations of each group of lines at once, to a device or pipe, or to standard output."""
    first = 1
    with (
        disk_of(path or Path("standard output")),
        open(path, "w", encoding="utf-8") if path else nullcontext(sys.stdout) as out,
    ):
        for group in groups:
            out.write(translate(first, group))
            out.flush()
            first += len(group)


def write_in_parts(path: Path, key: str, groups: Iterable[list[str]], translate: Translate, resume: Callable) -> None:
    """Write the translations of groups of lines to a regular file, which appears whole. See `finished_parts`."""
    with parts_folder(path) as folder:
        parts = finished_parts(folder, key, groups, translate, resume)
        with whole_file(path) as temporary, open(temporary, "wb") as target:
            for part in parts:
                with open(part, "rb") as file:
                    shutil.copyfileobj(file, target)


def finished_parts(
    folder: Path, key: str, groups: Iterable[list[str]], translate: Translate, resume: Callable
) -> list[Path]:
    """Translate groups of lines, and return the files that hold the translations of each PART_LINES lines.

    They are kept in a folder, of `parts_folder`, under a name made of these lines and `key`. So a process that was
    stopped loses one part at most. key: a text that differs when anything else differs that the translations are made
    from. resume: called with the number of lines of a part that is there already.
    """
    parts, first = [], 1
    for group in chunks(chain.from_iterable(groups), PART_LINES):
        name = sha256_text("\n".join([key, str(first), *group]))
        part = folder / f"{name}.part"
        if part.is_file():
            resume(len(group))
        else:
            text = translate(first, group)
            with whole_file(part, durable=True) as temporary:
                temporary.write_text(text, encoding="utf-8", newline="\n")
        parts.append(part)
        first += len(group)
    return parts


@contextmanager
def parts_folder(path: Path) -> Iterator[Path]:
    """Yield the folder PATH.parts, for the finished parts of an output, to this process alone.

    All parts, also those of other settings, or half-written, are removed when the block succeeds. Raises Mistake
    while another process writes this output.
    """
    folder = path.with_name(f"{path.name}.parts")
    folder.mkdir(exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise Mistake(f"{path} is being written by another process. Nothing was translated. Wait for it.") from None
    except OSError:
        pass  # a network disk, which cannot lock folders
    try:
        yield folder
        for part in folder.glob(f"{'[0-9a-f]' * 64}.part*"):
            part.unlink()
    finally:
        with suppress(OSError):  # it has finished parts, or files of the user
            folder.rmdir()
        os.close(descriptor)
