"""The files in archives, read without unpacking, so that nothing is ever written."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from transformer.files import Mistake, is_bug


@contextmanager
def open_member(path: Path, name: str) -> Iterator[BinaryIO]:
    """Open a file in an archive.

    In the block, Mistake is raised with archive and member if it is damaged, has a password, or is compressed in a way
    that Python does not know.
    """
    try:
        is_zip = path.suffix == ".zip"
        opened: Any = zipfile.ZipFile(path) if is_zip else tarfile.open(path, "r|*")  # noqa: SIM115
        with opened as archive:
            for info in archive.infolist() if is_zip else archive:
                if (info.filename if is_zip else info.name).removeprefix("./") == name:
                    file = archive.open(info) if is_zip else archive.extractfile(info)
                    if file is not None:  # tarfile's for a folder
                        yield file
                        return
    except Exception as error:  # tarfile and zipfile raise errors of any kind for damaged bytes, also TypeError
        if isinstance(error, Mistake) or is_bug(error):
            raise
        unknown = type(error) in (RuntimeError, NotImplementedError)  # zipfile's for a password or another compression
        remedy = "Pack it without a password, by deflate" if unknown else "Get it again, or from another place"
        reason = " ".join(str(error).split()) or type(error).__name__
        raise Mistake(f"{path.name}: {name} cannot be read ({reason}). {remedy}.") from None
    raise Mistake(f"{path.name} has no {name}.")
