"""Translated files that wait to be fetched, in a folder that several servers may share."""

from __future__ import annotations

import re
import secrets
import time
from contextlib import suppress
from pathlib import Path

from transformer.files import whole_file

MOST_KEPT, MOST_FILES, HOUR = 1 << 26, 1_000, 3600  # bytes, number and seconds of files that are kept, the newest first
NAME = re.compile(r"[\w-]{22}\.[a-z]+", re.ASCII)  # other files are left alone


def keep(folder: Path, content: bytes, end: str) -> str:
    """Write a file with a name that nobody guesses and that has this end, and remove old ones. Returns the name."""
    name = f"{secrets.token_urlsafe(16)}{end}"
    with whole_file(folder / name) as temporary:
        temporary.write_bytes(content)
    kept = 0  # bytes
    with suppress(FileNotFoundError):  # another server removes old files too
        paths = [path for path in folder.iterdir() if NAME.fullmatch(path.name)]
        for number, path in enumerate(sorted(paths, key=lambda path: -path.stat().st_mtime)):
            kept += path.stat().st_size
            if number >= MOST_FILES or kept > MOST_KEPT or is_old(path):
                path.unlink()
    return name


def is_old(path: Path) -> bool:
    """Whether a file was written more than an hour ago."""
    return path.stat().st_mtime < time.time() - HOUR


def fetch(folder: Path, name: str) -> bytes | None:
    """The content of a file, or None if it is not there or old."""
    with suppress(FileNotFoundError):
        if NAME.fullmatch(name) and not is_old(folder / name):
            return (folder / name).read_bytes()
    return None
