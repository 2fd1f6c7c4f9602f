"""The files in archives, read without unpacking, so that nothing is ever written. An archive is checked first."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple

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
    try:
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                for info in archive.infolist():
                    link = (info.external_attr >> 16) & 0o170000 == 0o120000
                    kind = "link" if link else "folder" if info.is_dir() else "file"
                    yield Member(info.filename, info.file_size, kind)
        else:
            with tarfile.open(path, "r|*") as archive:
                for info in archive:
                    kind = "file" if info.isreg() else "folder" if info.isdir() else "link or device"
                    yield Member(info.name, info.size, kind)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, OSError) as error:
        raise ValueError(f"{path.name} is damaged or no archive ({error}). Nothing was read from it.") from None


def check_archive(path: Path, wanted: Iterable[str]) -> None:
    """Raise ValueError if an archive lacks one of the files `wanted`, or has members that no corpus needs.

    Those are links, devices, names that lead out of a folder, and more bytes than a text would have.
    """
    limit, total, missing = MOST_RATIO * path.stat().st_size + ALWAYS_ALLOWED, 0, set(wanted)
    for member in members(path):
        total += member.size
        parts = PurePosixPath(member.name.replace("\\", "/"))
        if member.kind not in ("file", "folder"):
            problem = f"{member.name} is a {member.kind}"
        elif parts.is_absolute() or ".." in parts.parts:
            problem = f"{member.name} leads out of its folder"
        elif total > limit:
            problem = f"it unpacks to more than {limit:,} bytes, {MOST_RATIO} times its size"
        else:
            missing -= {member.name.removeprefix("./")} if member.kind == "file" else set()
            continue
        raise ValueError(f"{path.name} was refused: {problem}.")
    if missing:
        raise ValueError(f"{path.name} has no {', '.join(sorted(missing))}.")


@contextmanager
def open_member(path: Path, name: str) -> Iterator[BinaryIO]:
    """Open a file in an archive that check_archive accepted."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive, archive.open(name) as file:
            yield file  # type: ignore[misc]
        return
    with tarfile.open(path, "r|*") as archive:
        for info in archive:
            if info.name.removeprefix("./") == name and (file := archive.extractfile(info)) is not None:
                yield file  # type: ignore[misc]
                return
    raise ValueError(f"{path.name} has no {name}.")
