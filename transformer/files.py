"""Files and folders that are written completely or not at all, lines of text files, checksums, messages to the user."""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import secrets
import shutil
import sys
import sysconfig
import traceback
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

Item = TypeVar("Item")
LIBRARIES = (*(sysconfig.get_path(kind) for kind in ("stdlib", "platlib", "purelib")), "<frozen")
OWN_PACKAGES = ("transformer", "pipeline", "benchmarks", "docs")


class Mistake(ValueError):
    """What the user can put right. The message has the value, the place and the remedy. See also `mistake_line`."""


class UnreadableInput(Mistake):
    """A file that an earlier step wrote is missing or damaged. The step that reads it adds what makes it again."""


class Untrainable(Mistake):
    """The knobs make a training impossible: they leave no pairs, or its loss is not finite. A search tries others."""


def mistake_line(error: BaseException) -> str:
    """The line that a user reads of an error; "" for a bug of this program.

    The user's are a Mistake, an OSError that names a file, a full disk or memory, and a package that is not installed.
    """
    if isinstance(error, MemoryError):
        return "The memory is full. End other programs, or lower WORKERS or device_tokens, and run it again."
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):  # a write names no file
        return f"The disk of {error.filename or Path.cwd()} is full. Free some space, and run the same command again."
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] not in OWN_PACKAGES:
        return (
            f"{sys.executable} has no package {error.name}. Type `. .venv/bin/activate`, which `make setup` makes, or "
            "`pip install .`, and the same command again."
        )
    return str(error) if isinstance(error, Mistake) else ""


def is_bug(error: BaseException) -> bool:
    """Whether an exception is neither the user's (`mistake_line`) nor raised in a library that we called."""
    frames = traceback.extract_tb(error.__traceback__)
    file = frames[-1].filename if frames else ""
    of_library = file.startswith(LIBRARIES) and not file.startswith(str(Path(__file__).parent))
    of_library |= file.endswith(".pyx")  # compiled code names its source
    return not (of_library or mistake_line(error))


@contextmanager
def whole_file(path: Path, durable: bool = False) -> Iterator[Path]:
    """Yield a temporary path to write. It is renamed to `path` when the block succeeds, and removed when it raises.

    A file that is there keeps its permissions: what is private stays so.

    durable: flush file and folder to the disk around the rename, so that a power cut leaves the old or the new file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_path(path)
    try:
        with disk_of(path):
            yield temporary
        with suppress(FileNotFoundError):
            shutil.copymode(path, temporary)
        if durable:
            _sync(temporary)
        os.replace(temporary, path)
        if durable:
            _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def disk_of(path: Path) -> Iterator[None]:
    """In this block the error of a full disk, in which Python names no file, names `path`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) and error.filename is None:
            error.filename = str(path)
        raise


def read_text(path: Path, encoding: str) -> tuple[str, str]:
    """The text of a file, with the line ends of Unix, and its own line end. A byte-order mark stays."""
    with open(path, encoding=encoding) as file:
        text = file.read()
        return text, file.newlines if isinstance(file.newlines, str) else "\n"


def conversion(start: bytes, name: str) -> str:
    """The remedy for a file that is not UTF-8. start: its first bytes."""
    encoding = "UTF-16" if start.startswith((b"\xff\xfe", b"\xfe\xff")) else "ENCODING"
    such_as = " (ENCODING: WINDOWS-1252 in western Europe, 1250 in central, 1251 for Cyrillic)" * (
        encoding == "ENCODING"
    )
    return f"Convert it: iconv -f {encoding} -t UTF-8 {quote(name)} > new{Path(name).suffix}{such_as}"


def check_length(line: bytes, position: str, most: int) -> None:
    """Raise Mistake for a line of more than `most` bytes. position: of the line, for the message."""
    if len(line) > most:
        raise Mistake(f"{position}: a line of more than {most:,} bytes. Write one sentence per line.")


def decode_line(line: bytes, name: str, number: int, most: int) -> str:
    """A line of a file as text. Raises Mistake for more than `most` bytes, for what is not UTF-8, and for a NUL.

    name: of the file. number: of the line. Both are in the message, with the number of the character.
    """
    check_length(line, f"{name}:{number}", most)
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        position = f"{name}:{number}:{len(line[: error.start].decode('utf-8')) + 1}"
        raise Mistake(f"{position}: not UTF-8 ({error.reason}). {conversion(line, name)}") from None
    if "\0" in text:
        raise Mistake(f"{name}:{number}:{text.index(chr(0)) + 1}: a NUL character. Remove it, or give a text file.")
    return text


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


def check_replaceable(path: Path, names: Collection[str]) -> None:
    """Raise Mistake if a folder has files with other names than `names`: it is not ours to replace."""
    if foreign := sorted(file.name for file in path.iterdir() if file.name not in names) if path.is_dir() else []:
        raise Mistake(f"{path} would be replaced, and has {foreign[0]}. Nothing was written. Name another folder.")


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield a new temporary folder to fill. It replaces the folder `path` when the block succeeds."""
    temporary = temporary_path(path)
    temporary.mkdir(parents=True)
    try:
        with disk_of(path):
            yield temporary
        if path.exists():
            shutil.rmtree(path)
        os.replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def temporary_path(path: Path) -> Path:
    """A path beside `path` that no other process writes: NAME.<eight hexadecimal digits>.tmp."""
    return path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")


def remove_temporaries(path: Path) -> None:
    """Remove what killed processes left of `path`. To be called while no process writes it."""
    for temporary in path.parent.glob(f"{glob.escape(path.name)}.{'[0-9a-f]' * 8}.tmp"):
        shutil.rmtree(temporary) if temporary.is_dir() else temporary.unlink()


def _sync(path: Path) -> None:
    """Flush a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, without their line feed. Only \\n ends a line: \\r, \\x85 or U+2028 do not.

    Raises UnreadableInput for a file that is not UTF-8.
    """
    try:
        with open(path, encoding="utf-8", newline="\n") as file:
            for line in file:
                yield line.removesuffix("\n")
    except UnicodeDecodeError as error:
        raise UnreadableInput(f"{path} is damaged (not UTF-8: {error.reason}).") from None


def read_json(path: Path) -> Any:
    """The contents of a JSON file. Raises UnreadableInput for a file that is no JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise UnreadableInput(f"{path} is damaged (no JSON: {error}).") from None


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


def position_of(line: int, files: Sequence[tuple[str, int]]) -> tuple[str, int]:
    """The file in which a line of a text lies, and its number there, from 1.

    line: its number in the text, from 1. files: the text's files, in order, each with its number of lines.
    """
    for name, count in files:
        if line <= count:
            return name, line
        line -= count
    raise IndexError(f"the text ends {line} lines before")


def sha256(path: Path) -> str:
    """Hexadecimal sha256 of a file. Of a folder: the sha256 of the sorted list of its files with their sha256."""
    if path.is_dir():
        names = sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())
        return sha256_text("".join(f"{sha256(path / name)}  {name}\n" for name in names))
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_key(**parts: object) -> str:
    """One hash of named plain values. The order of the names does not matter."""
    return sha256_text(json.dumps(parts, sort_keys=True))


def sha256_text(text: str) -> str:
    """Hexadecimal sha256 of a string in UTF-8."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def escape_controls(text: str) -> str:
    """A message as a terminal may show it: each character that moves a cursor or hides text becomes its escape."""
    return "".join(mark if mark.isprintable() else ascii(mark)[1:-1] for mark in text)
