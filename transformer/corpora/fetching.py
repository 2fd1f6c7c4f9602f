"""Files from the web or from a mirror: several at once, resumed after a break, and checked before they are read."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from urllib.parse import unquote, urlsplit

import requests
import urllib3

from transformer.credentials import mask_credentials
from transformer.files import sha256, sha256_text

AT_ONCE = 4  # downloads
ATTEMPTS = 5  # of one address
PAUSE = 1.0  # seconds before the second attempt; each pause is twice as long as the one before
TIMEOUT = 30.0  # seconds without any byte, or with few
SLOWEST = 1_000  # bytes a second
LONGEST_WAIT = 120  # seconds that a server may ask us to wait (Retry-After)
_AGAIN = (408, 425, 429, 500, 502, 503, 504)


@dataclass(frozen=True)
class Download:
    """A file to fetch.

    name: of the file. addresses: where it may be, in the order in which they are tried. size, sha256: None if not known
    yet, which only the command that writes a lock file accepts. md5: if somebody published it. otherwise: a file with
    the same texts, to be fetched if no address gives this one.
    """

    name: str
    addresses: tuple[str, ...]
    size: int | None
    sha256: str | None
    md5: str | None = None
    otherwise: Download | None = None

    def place(self, folder: Path) -> Path:
        """Where the file lies when it is complete. Files of several corpora with one name are kept apart."""
        return folder / f"{(self.sha256 or self.md5 or sha256_text(self.addresses[0]))[:12]}-{Path(self.name).name}"

    def part(self, folder: Path, address: str) -> Path:
        """Where what arrived from an address lies until it is complete: addresses may have other files."""
        return self.place(folder).with_suffix(f"{self.place(folder).suffix}.{sha256_text(address)[:8]}.part")


class Broken(Exception):
    """Raised when an attempt failed that may succeed later."""


def fetch_all(downloads: Mapping[str, Download], folder: Path, progress: Callable[[int], object]) -> dict[str, Path]:
    """Fetch files into `folder`, several at once. Returns the path of each. Files that are there are not fetched again.

    progress: called with the number of new bytes. Raises ValueError, one line, for the first file that no address
    gives; complete files, and the part of it that arrived, stay for the next time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stop = threading.Event()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = {name: pool.submit(fetch, one, folder, progress, stop) for name, one in downloads.items()}
        try:
            return {name: future.result() for name, future in found.items()}
        finally:
            stop.set()  # after an error or Ctrl-C the other downloads end at their next block
            pool.shutdown(cancel_futures=True)


def fetch(download: Download, folder: Path, progress: Callable[[int], object], stop: threading.Event) -> Path:
    """Fetch one file from the first of its addresses that has it, as `fetch_all` does."""
    target = download.place(folder)
    if target.is_file() and download.sha256 and sha256(target) == download.sha256:
        progress(target.stat().st_size)
        return target
    problems = []
    for address in download.addresses:
        if stop.is_set():
            break
        part = download.part(folder, address)
        try:
            receive_checked(address, part, download, progress, stop)
        except (Broken, ValueError, OSError) as error:
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise ValueError(f"The disk is full: {part} cannot be written. Free some space, and run the same "
                                 "command again, which goes on where it stopped.") from None  # fmt: skip
            problems.append(f"{address}: {error}")
        else:
            os.replace(part, target)
            return target
    if download.otherwise is not None:
        return fetch(download.otherwise, folder, progress, stop)
    raise ValueError(f"Cannot get {download.name}. {mask_credentials('; '.join(problems))}. Try again later, or set "
                     "CORPUS_MIRROR to a folder or address that has this file.")  # fmt: skip


def receive_checked(
    address: str, part: Path, download: Download, progress: Callable[[int], object], stop: threading.Event
) -> None:
    """Receive a file and check it. If it was resumed and is wrong, receive it once more from its first byte."""
    resumed = part.exists()
    receive(address, part, download, progress, stop)
    try:
        check(part, download)
    except ValueError:  # `check` has deleted the part
        if not resumed:
            raise
        receive_checked(address, part, download, progress, stop)


def check(part: Path, download: Download) -> None:
    """Raise ValueError if a complete file is not the wanted one; it is then deleted."""
    for kind, wanted in (("sha256", download.sha256), ("md5", download.md5)):
        with open(part, "rb") as file:
            found = file_digest(file, kind).hexdigest() if wanted else None
        if found != wanted:
            part.unlink()
            raise ValueError(f"{kind} {found} is not the locked {wanted}. The download was deleted")


def receive(
    address: str, part: Path, download: Download, progress: Callable[[int], object], stop: threading.Event
) -> None:
    """Write the file of an address to `part`, going on after the bytes that are there if its sha256 is known.

    Raises Broken when the address does not give the file in ATTEMPTS attempts, or says that it has none.
    """
    if "://" not in address or address.startswith("file://"):
        path = Path(unquote(urlsplit(address).path) if "://" in address else address)
        if not path.is_file():
            raise Broken("no such file")
        shutil.copyfile(path, part)
        progress(part.stat().st_size)
        return
    progress(part.stat().st_size if part.exists() else 0)
    for attempt in range(ATTEMPTS):
        if part.exists() and not download.sha256:  # nothing would notice a mixture of two versions
            progress(-part.stat().st_size)
            part.unlink()
        try:
            with request(address, part.stat().st_size if part.exists() else 0) as reply:
                if write(reply, part, download.size, progress, stop):
                    return
            problem = "the connection ended early"
        except Again as wait:
            problem = str(wait)
            stop.wait(wait.seconds)
        except Slow:
            problem = f"it sent fewer than {SLOWEST:,} bytes a second for {TIMEOUT:g} s"
        except requests.TooManyRedirects:
            raise Broken("it redirects to itself, or too often") from None
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            problem = reason(error)
        if stop.is_set():
            raise Broken("stopped")
        if attempt < ATTEMPTS - 1:
            time.sleep(PAUSE * 2**attempt)
    raise Broken(f"{problem}, in each of {ATTEMPTS} attempts")


class Slow(Exception):
    """Raised when a server sends too slowly."""


class Again(Exception):
    """Raised when a server asks for another attempt later. seconds: to wait."""

    def __init__(self, reply: requests.Response):
        super().__init__(f"the server answered {reply.status_code} {reply.reason}")
        after = reply.headers.get("Retry-After", "")
        self.seconds = min(float(after), LONGEST_WAIT) if after.isdigit() else 0.0


def request(address: str, start: int) -> requests.Response:
    """The reply for an address, from byte `start` on. A password in the address is not sent to where it redirects."""
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    reply = requests.get(address, headers=headers, stream=True, timeout=TIMEOUT)
    if reply.status_code in (200, 206, 416):
        return reply
    reply.close()
    if reply.status_code in _AGAIN:
        raise Again(reply)
    raise Broken(f"the server answered {reply.status_code} {reply.reason}")


def write(
    reply: requests.Response, part: Path, size: int | None, progress: Callable[[int], object], stop: threading.Event
) -> bool:
    """Write what a reply brings. Returns whether the file is complete."""
    have = part.stat().st_size if part.exists() else 0
    if reply.status_code == 416 or (reply.status_code == 206 and not resumes(reply, have)):
        complete = have == size
        if not complete:  # the bytes in `part` are not the start of that file
            part.unlink(missing_ok=True)
            progress(-have)
        return complete
    if reply.status_code == 200 and have:  # the server ignores ranges: from the start
        progress(-have)
        have = 0
    with open(part, "r+b" if have else "wb") as file:
        file.seek(have)
        for block in blocks(reply):
            file.write(block)
            progress(len(block))
            if stop.is_set():
                return False
            if size is not None and file.tell() > size:
                raise Broken(f"it has more than the {size:,} bytes of the lock file")
        end = file.tell()
    length = reply.headers.get("Content-Length")
    return end == size if size is not None else length is None or end == have + int(length)


def blocks(reply: requests.Response) -> Iterator[bytes]:
    """The bytes of a reply as they come, as they were sent: a .gz file stays compressed.

    Raises Slow if fewer than SLOWEST bytes a second came for TIMEOUT seconds.
    """
    start, count = time.monotonic(), 0
    while block := reply.raw.read1(1 << 16, decode_content=False):
        yield block
        count += len(block)
        if (passed := time.monotonic() - start) >= TIMEOUT:
            if count < SLOWEST * passed:
                raise Slow
            start, count = time.monotonic(), 0


def resumes(reply: requests.Response, start: int) -> bool:
    """Whether a reply brings the bytes from `start` on."""
    return reply.headers.get("Content-Range", "").startswith(f"bytes {start}-")


def reason(error: Exception) -> str:
    """An error of requests or urllib3 in a few words."""
    if isinstance(error, (requests.Timeout, urllib3.exceptions.TimeoutError)) or "timed out" in str(error):
        return f"no byte came for {TIMEOUT:g} s"
    if isinstance(error, requests.ConnectionError) and "Connection refused" in str(error):
        return "the connection was refused"
    if "Connection aborted" in str(error) or isinstance(error, urllib3.exceptions.ProtocolError):
        return "the connection broke"
    return " ".join(str(error).split())[:200] or type(error).__name__
