"""A server may truncate, corrupt, stall, break or refuse: a download survives it, or ends in one clear line."""

from __future__ import annotations

import base64
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support.stages import wait_until

from transformer.corpora import receiving
from transformer.corpora.fetching import Download, fetch_all
from transformer.credentials import check_address, mask_credentials

ROOT = Path(__file__).parents[2]
DATA = bytes(range(256)) * 2000  # 512,000 bytes
SHA256, MD5 = hashlib.sha256(DATA).hexdigest(), hashlib.md5(DATA, usedforsecurity=False).hexdigest()
HALF = len(DATA) // 2


class Site(ThreadingHTTPServer):
    """A server that counts the requests of each path, and notes the ranges that were asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Server)
        self.seen: Counter[str] = Counter()
        self.ranges: list[str | None] = []
        self.stop = threading.Event()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class Server(BaseHTTPRequestHandler):
    """Serves DATA; the first part of the path says what goes wrong, the second how often: /truncate/2/file."""

    protocol_version = "HTTP/1.1"
    server: Site

    def do_GET(self) -> None:
        kind, times = self.path.split("/")[1:3]
        self.server.seen[self.path] += 1
        failing = self.server.seen[self.path] <= int(times)
        self.server.ranges.append(self.headers.get("Range"))
        with suppress(ConnectionError):
            getattr(self, kind if failing else "well")()
        self.close_connection = True

    def reply(self, status: int, data: bytes = b"", length: int | None = None, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data) if length is None else length))
        self.send_header("Connection", "close")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def well(self) -> None:
        start = int((self.headers.get("Range") or "bytes=0-")[6:].split("-")[0])
        if start >= len(DATA):
            self.reply(416)
        elif start:
            self.reply(206, DATA[start:], Content_Range=f"bytes {start}-{len(DATA) - 1}/{len(DATA)}")
        else:
            self.reply(200, DATA)

    def truncate(self) -> None:
        self.reply(200, DATA[:HALF], length=len(DATA))

    def corrupt(self) -> None:
        self.reply(200, b"x" + DATA[1:])

    def longer(self) -> None:
        self.reply(200, DATA + bytes(10_000_000))

    def stall(self) -> None:
        self.reply(200, DATA[:HALF], length=len(DATA))
        self.wfile.flush()
        self.server.stop.wait(20)

    def ignores(self) -> None:
        """Breaks once, then answers the request for the rest with the whole file."""
        if self.headers.get("Range"):
            self.reply(200, DATA)
        else:
            self.truncate()

    def wrong_range(self) -> None:
        """Breaks once, then answers the request for the rest with another part."""
        if self.headers.get("Range"):
            self.reply(206, DATA[:10], Content_Range=f"bytes 0-9/{len(DATA)}")
        else:
            self.truncate()

    def busy(self) -> None:
        self.reply(429, Retry_After="0")

    def error(self) -> None:
        self.reply(500)

    def missing(self) -> None:
        self.reply(404)

    def odd_reason(self) -> None:
        self.wfile.write(b"HTTP/1.1 404 \x1b[2JGone\r\n\r\n")

    def moved(self) -> None:
        self.reply(307, Location="/well/0/file")

    def private(self) -> None:
        allowed = self.headers["Authorization"] == "Basic " + base64.b64encode(b"me:ge/h@eim").decode()
        if allowed:
            self.well()
        else:
            self.reply(401)

    def elsewhere(self) -> None:
        self.reply(302, Location=f"http://localhost:{self.server.server_address[1]}/private/99/file")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch) -> Iterator[Site]:
    monkeypatch.setattr(receiving, "PAUSE", 0.0)
    monkeypatch.setattr(receiving, "TIMEOUT", 0.5)
    with Site() as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        yield site
        site.stop.set()
        site.shutdown()


def get(
    server: Site,
    folder: Path,
    *paths: str,
    login: str = "",
    size: int | None = len(DATA),
    sha256: str | None = SHA256,
    md5: str | None = None,
) -> Path:
    """Fetch the file of these paths of the server, the second where the first fails."""
    base = f"http://{login}{server.address}"
    download = Download("file", tuple(f"{base}/{path}/file" for path in paths), size, sha256, md5)
    return fetch_all({"file": download}, folder, lambda count: None)["file"]


SURVIVED = ["well/0", "truncate/1", "stall/1", "ignores/2", "wrong_range/2", "busy/2", "error/4", "moved/1"]


@pytest.mark.parametrize("path", SURVIVED)
def test_a_failure_that_passes_is_survived(server, tmp_path, path):
    assert get(server, tmp_path, path).read_bytes() == DATA
    assert [file.suffix for file in tmp_path.iterdir()] == [""]


REFUSED = [
    ("missing/99", "the server answered 404 Not Found"),
    ("odd_reason/99", r"the server answered 404 \x1b[2JGone"),
    ("corrupt/99", "The download was deleted"),
    ("longer/99", f"it has more than {len(DATA):,} bytes"),
    ("stall/99", "no byte came for 0.5 s, in each of 5 attempts"),
    ("truncate/99", "the connection broke, in each of 5 attempts"),
    ("error/99", "the server answered 500 Internal Server Error, in each of 5 attempts"),
    ("private/99", "the server answered 401 Unauthorized"),
]


@pytest.mark.parametrize(("path", "expected"), REFUSED)
def test_a_failure_that_stays_is_one_line_with_address_and_remedy(server, tmp_path, path, expected):
    with pytest.raises(ValueError, match="Cannot get file") as error:
        get(server, tmp_path, path)
    message = str(error.value)
    assert expected in message
    assert f"/{path}/file" in message
    assert "CORPUS_MIRROR" in message
    assert "\n" not in message
    assert all(file.suffix == ".part" for file in tmp_path.iterdir())


def test_the_next_call_goes_on_after_the_part_that_a_failed_one_left(server, tmp_path):
    with pytest.raises(ValueError, match="Cannot get"):
        get(server, tmp_path, "stall/5")
    (part,) = tmp_path.iterdir()
    have = part.stat().st_size
    assert HALF - (1 << 16) < have <= HALF
    assert get(server, tmp_path, "stall/5").read_bytes() == DATA
    assert server.ranges[-1] == f"bytes={have}-"


@pytest.mark.parametrize("first", ["missing/99", "corrupt/99", "longer/99", "truncate/99"])
def test_the_next_address_is_tried_when_one_fails(server, tmp_path, first):
    assert get(server, tmp_path, first, "well/0").read_bytes() == DATA


def test_a_complete_file_is_not_fetched_again_and_a_wrong_one_is(server, tmp_path):
    path = get(server, tmp_path, "well/0")
    get(server, tmp_path, "well/0")
    assert len(server.ranges) == 1
    path.write_bytes(b"edited")
    assert get(server, tmp_path, "well/0").read_bytes() == DATA


def test_a_full_disk_is_named_and_the_part_stays(server, tmp_path, monkeypatch):
    def full(*_: object) -> bool:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(receiving, "write", full)
    with pytest.raises(ValueError, match="The disk is full"):
        get(server, tmp_path, "well/0")


def test_a_file_without_a_locked_sum_is_checked_by_its_published_md5(server, tmp_path):
    assert get(server, tmp_path, "well/0", size=None, sha256=None, md5=MD5).read_bytes() == DATA
    with pytest.raises(ValueError, match=f"md5 [0-9a-f]{{32}} is not {MD5}"):
        get(server, tmp_path / "other", "corrupt/99", size=None, sha256=None, md5=MD5)


def test_a_password_is_sent_to_its_host_alone_and_shown_nowhere(server, tmp_path, monkeypatch):
    login = "me:ge%2Fh@eim@"
    monkeypatch.setenv("CORPUS_MIRROR", f"http://{login}127.0.0.1")
    assert get(server, tmp_path, "private/99", login=login).read_bytes() == DATA
    with pytest.raises(ValueError, match="401") as error:
        get(server, tmp_path / "b", "elsewhere/99", login=login)
    assert not any(part in str(error.value) for part in ("ge%2Fh", "ge/h", "eim"))


def test_ctrl_c_does_not_wait_for_a_silent_server(server, tmp_path):
    code = (
        "import signal, sys\nfrom pathlib import Path\nfrom transformer.corpora.fetching import Download, fetch_all\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's job in the background ignores it
        f"other = Download('b', (sys.argv[1],), {len(DATA)}, 'b')\n"
        f"file = Download('a', (sys.argv[1], sys.argv[1] + '2'), {len(DATA)}, 'a', fallback=other)\n"
        "fetch_all({'a': file}, Path(sys.argv[2]), lambda count: None)\n"
    )
    address = f"http://{server.address}/stall/99/a"
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", code, address, str(tmp_path)], env=env, stderr=subprocess.PIPE)
    wait_until(lambda: list(tmp_path.iterdir()))
    process.send_signal(signal.SIGINT)
    assert b"KeyboardInterrupt" in process.communicate(timeout=25)[1]  # a silent server is given 30 s
    assert len(server.ranges) == 1


@pytest.mark.parametrize("place", ["file:///etc/hostname", "gopher://localhost/file", "ftp://localhost/a"])
def test_an_address_that_no_attempt_can_help_is_asked_once(server, tmp_path, monkeypatch, place):
    monkeypatch.setattr(Server, "moved", lambda self: self.reply(307, Location=place))
    with pytest.raises(ValueError, match="no address to fetch"):
        get(server, tmp_path, "moved/99")
    assert len(server.ranges) == 1


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me:ge/h@eim@host/runs",
        "http://host/?password=ge/h@eim&x=1",
        "nonnumeric port: 'ge/h@eim'",
        "bad: ge%2Fh@eim",
    ],
)
def test_a_message_hides_passwords_in_users_fields_and_on_their_own(monkeypatch, text):
    monkeypatch.setenv("CORPUS_MIRROR", "http://me:ge%2Fh@eim@host")
    assert not any(part in mask_credentials(text) for part in ("ge/h", "ge%2F", "eim"))


@pytest.mark.parametrize("login", ["me:ge h@eim", "me:ge/h@eim", "me:ge?h@eim", "me:ge[h@eim", "me:ge\nh@eim"])
def test_a_password_that_hides_its_host_is_refused_unseen(monkeypatch, login):
    """Its address is masked all the same, wherever it occurs."""
    monkeypatch.setenv("CORPUS_MIRROR", address := f"https://{login}@host/corpora")
    with pytest.raises(ValueError, match="CORPUS_MIRROR is not an address, or its password") as error:
        check_address(address, "CORPUS_MIRROR")
    assert "eim" not in str(error.value) + mask_credentials(address)
    for address in ("https://host:80/@me/a b", "https://me:ge%20h@eim@host", "sqlite:////home/a b@c/d", "/mnt/a b@c"):
        assert check_address(address, "x") == address


def test_a_server_that_is_busy_is_asked_when_it_says(server, tmp_path, monkeypatch):
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    for after in ("7", "99999"):
        monkeypatch.setattr(Server, "busy", lambda self, after=after: self.reply(503, Retry_After=after))
        get(server, tmp_path / after, "busy/2")
        server.seen.clear()
    assert waits == [7, 7, receiving.LONGEST_WAIT, receiving.LONGEST_WAIT]
