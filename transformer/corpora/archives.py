"""The files in archives, read without unpacking, so that nothing is ever written. An archive is checked first."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple

from transformer.files import Mistake

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
    """The members of an archive. Raises Mistake for a file that is none."""
    for _, info in _infos(path, f"{path.name} is damaged or no archive"):
        if isinstance(info, zipfile.ZipInfo):
            link = (info.external_attr >> 16) & 0o170000 == 0o120000
            kind = "link" if link else "folder" if info.is_dir() else "file"
            yield Member(info.filename, info.file_size, kind)
        else:
            info.pax_headers = {}  # tarfile keeps all members, each with a copy of the headers for all of them
            kind = "file" if info.isreg() else "folder" if info.isdir() else "link or device"
            yield Member(info.name, info.size, "sparse file" if info.issparse() else kind)


def _infos(path: Path, problem: str) -> Generator[tuple[Any, Any], None, None]:
    """An archive, with each of its members as zipfile and tarfile have it. problem: see `_archive_errors`."""
    is_zip = path.suffix == ".zip"
    with ExitStack() as stack:
        with _archive_errors(problem):
            archive: Any = zipfile.ZipFile(path) if is_zip else tarfile.open(path, "r|*")  # noqa: SIM115
            stack.enter_context(archive)
        infos, info = iter(archive.infolist() if is_zip else archive), None
        while True:
            with _archive_errors(problem):
                info = next(infos, None)
            if info is None:
                return
            yield archive, info


def check_archive(path: Path, names: Iterable[str]) -> None:
    """Raise Mistake if an archive lacks one of the files `names`, or has members that no corpus needs.

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
            missing -= {_member_name(member.name)} if member.kind == "file" else set()
            continue
        raise Mistake(f"{path.name} was refused: {problem}.")
    if missing:
        raise Mistake(f"{path.name} has no {', '.join(sorted(missing))}.")


@contextmanager
def open_member(path: Path, name: str) -> Iterator[BinaryIO]:
    """Open a file in an archive that check_archive accepted.

    To open and to read it raise Mistake with archive and member if it is damaged, has a password, or is compressed
    in a way that Python does not know.
    """
    problem = f"{path.name}: {name} cannot be read"
    with closing(_infos(path, problem)) as infos:
        for archive, info in infos:
            is_zip = isinstance(info, zipfile.ZipInfo)
            if _member_name(info.filename if is_zip else info.name) != name:
                continue
            with _archive_errors(problem):
                file = archive.open(info) if is_zip else archive.extractfile(info)
            if file is not None:  # tarfile's for a folder
                yield io.BufferedReader(_Named(file, problem))  # type: ignore[misc]
                return
    raise Mistake(f"{path.name} has no {name}.")


def _member_name(name: str) -> str:
    """The name of a member as manifests have it."""
    return name.removeprefix("./")


class _Named(io.RawIOBase):
    """A file in an archive. problem: what the message of an error while it is read begins with."""

    def __init__(self, file: Any, problem: str) -> None:
        self.file, self.problem = file, problem

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _archive_errors(self.problem):
            data = self.file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


@contextmanager
def _archive_errors(problem: str) -> Iterator[None]:
    """Surround a call of tarfile or zipfile: its error becomes a Mistake of the problem, its reason and what to do."""
    try:
        yield
    except Exception as error:  # tarfile and zipfile raise errors of any kind for damaged bytes, also TypeError
        unknown = type(error) in (RuntimeError, NotImplementedError)  # zipfile's for a password or another compression
        remedy = "Pack it without a password, by deflate" if unknown else "Get it again, or from another place"
        reason = " ".join(str(error).split()) or type(error).__name__
        raise Mistake(f"{problem} ({reason}). {remedy}.") from None
