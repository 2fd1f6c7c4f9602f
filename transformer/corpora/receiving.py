"""One address to a file on disk, by requests: resumed after a break, and given up when the server does not help."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

ATTEMPTS = 5  # of one address
PAUSE = 1.0  # seconds before the second attempt; each pause is twice as long as the one before
TIMEOUT = 30.0  # seconds without any byte
LONGEST_WAIT = 120  # seconds that a server may ask us to wait (Retry-After)
AGAIN = (408, 425, 429, 500, 502, 503, 504)


class Broken(Exception):
    """Raised when an address does not give its file."""


class Position:
    """How far a file has come, in bytes. progress: called with each change."""

    def __init__(self, progress: Callable[[int], object]):
        self.bytes, self._progress = 0, progress

    def move(self, to: int) -> None:
        """The file has now `to` bytes."""
        self._progress(to - self.bytes)
        self.bytes = to


def receive(
    address: str, part: Path, position: Position, stop: threading.Event, size: int | None, resumable: bool
) -> None:
    """Write the file of an address to `part`.

    size: of the file in bytes, if known. resumable: go on after the bytes that are there; for a file with a checksum
    only: the two halves may be of different versions. Raises Broken when the address does not
    give the file in ATTEMPTS attempts, or says that it has none.
    """
    if "://" not in address or address.startswith("file://"):
        path = Path(unquote(urlsplit(address).path) if "://" in address else address)
        if not path.is_file():
            raise Broken("no such file")
        shutil.copyfile(path, part)
        position.move(part.stat().st_size)
        return
    problem = ""
    for attempt in range(ATTEMPTS):
        if stop.wait(PAUSE * 2**attempt if attempt else 0):
            raise Broken("stopped")
        if not resumable:
            part.unlink(missing_ok=True)
        have = part.stat().st_size if part.exists() else 0
        position.move(have)
        try:
            with request(address, have) as reply:
                if write(reply, have, part, position, stop, size):
                    return
            problem = "the connection ended early"
        except urllib3.exceptions.HTTPError as error:
            problem = reason(error)
    raise Broken(f"{problem}, in each of {ATTEMPTS} attempts")


def request(address: str, start: int) -> requests.Response:
    """The reply for an address, from byte `start` on. A password in the address is not sent to where it redirects.

    A server that cannot be reached or is busy is asked up to ATTEMPTS times. Raises Broken if it never sends the file.
    """
    retry = Retry(
        ATTEMPTS - 1, backoff_factor=PAUSE, status_forcelist=AGAIN, raise_on_status=False, retry_after_max=LONGEST_WAIT
    )
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    with requests.Session() as session:
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(max_retries=retry))
        try:
            reply = session.get(address, headers=headers, stream=True, timeout=TIMEOUT)
        except requests.RequestException as error:
            raise Broken(reason(error)) from None
    if reply.status_code in (200, 206, 416):
        return reply
    reply.close()
    often = f", in each of {ATTEMPTS} attempts" if reply.status_code in AGAIN else ""
    raise Broken(f"the server answered {reply.status_code} {reply.reason}{often}")


def write(
    reply: requests.Response, have: int, part: Path, position: Position, stop: threading.Event, size: int | None
) -> bool:
    """Write what a reply brings after the `have` bytes that are there. Returns whether the file is complete."""
    if reply.status_code == 416 or (reply.status_code == 206 and not resumes(reply, have)):
        complete = have == size
        if not complete:  # the bytes in `part` are not the start of that file
            part.unlink(missing_ok=True)
        return complete
    if reply.status_code == 200:  # all of it, also if the server ignores ranges
        have = 0
    length = reply.headers.get("Content-Length", "")
    expected = have + int(length) if size is None and length.isdecimal() else size  # None: the server does not say
    with open(part, "r+b" if have else "wb") as file:
        file.seek(have)
        while block := reply.raw.read1(1 << 16, decode_content=False):  # as it was sent: a .gz file stays compressed
            file.write(block)
            position.move(file.tell())
            if stop.is_set():
                return False
            if expected is not None and file.tell() > expected:
                raise Broken(f"it has more than {expected:,} bytes")
        return expected in (None, file.tell())


def resumes(reply: requests.Response, start: int) -> bool:
    """Whether a reply brings the bytes from `start` on."""
    return reply.headers.get("Content-Range", "").startswith(f"bytes {start}-")


def reason(error: Exception) -> str:
    """An error of requests or urllib3 in a few words."""
    if isinstance(error, requests.TooManyRedirects):
        return "it redirects to itself, or too often"
    if isinstance(error, ValueError):  # requests.exceptions.InvalidURL, InvalidSchema and others
        return f"no address to fetch: {error}"
    if isinstance(error, (requests.Timeout, urllib3.exceptions.TimeoutError)) or "timed out" in str(error):
        return f"no byte came for {TIMEOUT:g} s"
    if "NameResolutionError" in str(error):
        return "the name of its host was not found; is there a network?"
    if isinstance(error, requests.ConnectionError) and "Connection refused" in str(error):
        return "the connection was refused"
    if "Connection aborted" in str(error) or isinstance(error, urllib3.exceptions.ProtocolError):
        return "the connection broke"
    return " ".join(str(error).split())[:200] or type(error).__name__
