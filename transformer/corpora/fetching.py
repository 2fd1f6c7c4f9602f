"""Files from the web or from a mirror: several at once, from the first address that has them, checked before use."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import file_digest
from multiprocessing.pool import ThreadPool
from pathlib import Path

from transformer.corpora.receiving import Broken, Position, receive
from transformer.credentials import mask_credentials
from transformer.files import Mistake, escape_controls, sha256, sha256_text

AT_ONCE = 4  # downloads


@dataclass(frozen=True)
class Download:
    """A file to fetch.

    name: of the file. addresses: where it may be, in the order in which they are tried. size, sha256: None if not known
    yet, which only the command that writes a manifest accepts. md5: if somebody published it. fallback: a file with
    the same texts, to be fetched if no address gives this one.
    """

    name: str
    addresses: tuple[str, ...]
    size: int | None
    sha256: str | None
    md5: str | None = None
    fallback: Download | None = None

    def path(self, folder: Path) -> Path:
        """Where the file lies when it is complete. Files of several corpora with one name are kept apart."""
        return folder / f"{(self.sha256 or self.md5 or sha256_text(self.addresses[0]))[:12]}-{Path(self.name).name}"

    def part(self, folder: Path, address: str) -> Path:
        """The path of the partial download. Each address has its own: two addresses may serve different files."""
        return self.path(folder).with_suffix(f"{self.path(folder).suffix}.{sha256_text(address)[:8]}.part")


def fetch_all(downloads: Mapping[str, Download], folder: Path, progress: Callable[[int], object]) -> dict[str, Path]:
    """Fetch files into `folder`, several at once. Returns the path of each. Files that are there are not fetched again.

    progress: called with the number of new bytes, negative if some were thrown away. Raises Mistake, one line, as
    soon as one file cannot be had; complete files, and the parts that arrived, stay for the next time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stop = threading.Event()

    def fetch_one(name: str) -> tuple[str, Path]:
        return name, fetch(downloads[name], folder, Position(progress), stop)

    # The threads of a ThreadPool end with this process, so that Ctrl-C does not wait for a server that is silent.
    with ThreadPool(AT_ONCE) as pool:
        try:
            return dict(pool.imap_unordered(fetch_one, downloads))
        finally:
            stop.set()  # after an error or Ctrl-C the other downloads end at their next block


def fetch(download: Download, folder: Path, position: Position, stop: threading.Event) -> Path:
    """Fetch one file from the first of its addresses that has it, as `fetch_all` does."""
    problems = []
    file: Download | None = download
    while file is not None and not stop.is_set():
        target = file.path(folder)
        if target.is_file() and file.sha256 and sha256(target) == file.sha256:
            position.move(target.stat().st_size)
            return target
        for address in file.addresses:
            part = file.part(folder, address)
            try:
                receive_checked(address, part, file, position, stop)
            except (Broken, Mistake, OSError) as error:
                position.move(0)
                if isinstance(error, OSError):
                    raise Mistake(cannot_write(error, part)) from None
                problems.append(f"{address}: {error}")
            else:
                os.replace(part, target)
                return target
        file = file.fallback
    reasons = escape_controls(mask_credentials("; ".join(problems)))
    raise Mistake(
        f"Cannot get {download.name}. {reasons}. Try again later, or set CORPUS_MIRROR to a folder "
        "or address that has this file."
    )


def cannot_write(error: OSError, part: Path) -> str:
    """The message about a file that cannot be written, or a mirror's file that cannot be read."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"The disk is full: {part} cannot be written. Free some space, and run the same command again, which "
            "goes on where it stopped."
        )
    path, problem = error.filename or part, error.strerror or error
    return f"{path}: {problem}. Change its permissions, and run the same command again."


def receive_checked(address: str, part: Path, download: Download, position: Position, stop: threading.Event) -> None:
    """Receive a file and check it. If it was resumed and is wrong, receive it once more from its first byte."""
    resumed = part.exists()
    receive(address, part, position, stop, download.size, resumable=download.sha256 is not None)
    try:
        check(part, download)
    except Mistake:  # `check` has deleted the part
        if not resumed:
            raise
        receive_checked(address, part, download, position, stop)


def check(part: Path, download: Download) -> None:
    """Raise Mistake if a complete file has another checksum than `download`; it is then deleted."""
    for kind, expected in (("sha256", download.sha256), ("md5", download.md5)):
        with open(part, "rb") as file:
            digest = file_digest(file, kind).hexdigest() if expected else None
        if digest != expected:
            part.unlink()
            raise Mistake(f"{kind} {digest} is not {expected}, that of the manifest. The download was deleted")
