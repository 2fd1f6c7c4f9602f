"""The files in archives, read without unpacking, so that nothing is ever written. An archive is checked first."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple

MOST_RATIO = 100  # unpacked bytes of an archive by its own bytes; text has about 3 to 10
ALWAYS_ALLOWED = 1 << 20  # unpacked bytes


class Member(NamedTuple):
    """A file in an archive. kind: file, folder, or what else it is."""

    name: str
    size: int
    kind: str


def is_archive(path: Path) -> bool:
    """Whether a file is an archive by its name: .tgz, .tar.gz, .tar or .zip."""
    return path.name.endswith((".tgz", ".tar.gz", ".tar", ".zip"))


def members(path: Path) -> Iterator[Member]:
    """The members of an archive. Raises ValueError for a file that is none."""
    with _value_errors(f"{path.name} is damaged or no archive"):
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                for info in archive.infolist():
                    link = (info.external_attr >> 16) & 0o170000 == 0o120000
                    kind = "link" if link else "folder" if info.is_dir() else "file"
                    yield Member(info.filename, info.file_size, kind)
            return
        with tarfile.open(path, "r|*") as archive:
            for info in archive:
                info.pax_headers = {}  # tarfile keeps all members, each with a copy of the headers for all of them
                kind = "file" if info.isreg() else "folder" if info.isdir() else "link or device"
                yield Member(info.name, info.size, "sparse file" if info.issparse() else kind)


def check_archive(path: Path, names: Iterable[str]) -> None:
    """Raise ValueError if an archive lacks one of the files `names`, or has members that no corpus needs.

    Those are links, devices, sparse files, names that lead out of a folder, sizes below 0, and more bytes than a text
    would have.
    """
    limit, total, missing = MOST_RATIO * path.stat().st_size + ALWAYS_ALLOWED, 0, set(names)
    for member in members(path):
        total += member.size
        parts = PurePosixPath(member.name.replace("\\", "/"))
        if member.kind not in ("file", "folder"):
            problem = f"{member.name} is a {member.kind}"
        elif parts.is_absolute() or ".." in parts.parts:
            problem = f"{member.name} leads out of its folder"
        elif member.size < 0:
            problem = f"{member.name} has {member.size:,} bytes"
        elif total > limit:
            problem = f"it unpacks to more than {limit:,} bytes, {MOST_RATIO} times its size"
        else:
            missing -= {_plain(member.name)} if member.kind == "file" else set()
            continue
        raise ValueError(f"{path.name} was refused: {problem}.")
    if missing:
        raise ValueError(f"{path.name} has no {', '.join(sorted(missing))}.")


@contextmanager
def open_member(path: Path, name: str) -> Iterator[BinaryIO]:
    """Open a file in an archive that check_archive accepted.

    To open and to read it raise ValueError with archive and member if it is damaged, has a password, or is compressed
    in a way that Python does not know.
    """
    problem = f"{path.name}: {name} cannot be read"
    with ExitStack() as stack:
        with _value_errors(problem):
            file = stack.enter_context(_first_of(path, name))
        if file is None:
            raise ValueError(f"{path.name} has no {name}.")
        yield io.BufferedReader(_Named(file, problem))  # type: ignore[misc]


@contextmanager
def _first_of(path: Path, name: str) -> Iterator[Any]:
    """The first file of a name in an archive; None if the archive has no such file."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            same = [member for member in archive.namelist() if _plain(member) == name]
            yield archive.open(same[0]) if same else None
        return
    with tarfile.open(path, "r|*") as archive:
        files = (archive.extractfile(info) for info in archive if _plain(info.name) == name)
        yield next((file for file in files if file is not None), None)


def _plain(name: str) -> str:
    """The name of a member as manifests have it."""
    return name.removeprefix("./")


class _Named(io.RawIOBase):
    """A file in an archive. problem: what the message of an error while it is read begins with."""

    def __init__(self, file: Any, problem: str) -> None:
        self.file, self.problem = file, problem

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _value_errors(self.problem):
            data = self.file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


@contextmanager
def _value_errors(problem: str) -> Iterator[None]:
    """Raise what goes wrong within as a ValueError: the problem, its reason, and what to do."""
    try:
        yield
    except Exception as error:  # tarfile and zipfile raise errors of any kind for damaged bytes, also TypeError
        unknown = type(error) in (RuntimeError, NotImplementedError)  # zipfile's for a password or another compression
        remedy = "Pack it without a password, by deflate" if unknown else "Get it again, or from another place"
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{problem} ({reason}). {remedy}.") from None
