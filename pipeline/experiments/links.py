"""Folders with files of an experiment, without copies of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def link_folder(files: Mapping[str, Path], place: Path, inner: str = "") -> None:
    """Make a folder `place` of links to files.

    files: name -> file; see `Results.folder`. inner: the beginning of the names to take, such as float32/.
    """
    place.mkdir(parents=True, exist_ok=True)
    for name, file in files.items():
        if name.startswith(inner):
            (place / name.removeprefix(inner)).symlink_to(file.resolve())
