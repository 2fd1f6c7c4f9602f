"""The files in archives, read without unpacking, so that nothing is ever written."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from transformer.files import Mistake


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


@contextmanager
def open_member(path: Path, name: str) -> Iterator[BinaryIO]:
    """Open a file in an archive.

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
