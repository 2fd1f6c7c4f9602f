"""A corpus is checked before it is used: an error names file and line, and a bad download is deleted."""

import base64
import gzip
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.corpora.copy_task import copy_corpus
from transformer.corpora.parallel_files import decode, fetch, locked_corpus, user_corpus
from transformer.credentials import mask_credentials

SPLITS = ("train", "valid", "test")


def files(folder, **contents):
    """A folder of parallel files, two lines each, with some contents replaced: train_de=b'...'."""
    folder.mkdir(exist_ok=True)
    for split in SPLITS:
        for language in ("de", "en"):
            (folder / f"{split}.{language}").write_bytes(contents.get(f"{split}_{language}", b"eins\nzwei\n"))
    return folder


def test_a_users_files_are_read(tmp_path):
    corpus = user_corpus(files(tmp_path, train_de="Grüße\nb".encode()), "de", "en")
    assert corpus["train", "source"] == ["Grüße", "b"]
    assert corpus["test", "target"] == ["eins", "zwei"]


@pytest.mark.parametrize(
    ("contents", "wanted"),
    [
        ({"train_de": b"a\nb\nc\nd\ne\n"}, r"train\.de has 5 lines and .*train\.en 2, 3 fewer"),
        ({"valid_en": b"a\nb\nc\n"}, r"valid\.en has 3 lines and .*valid\.de 2, 1 fewer"),
        ({"train_de": b"", "train_en": b""}, r"train\.de is empty"),
        ({"train_de": b"a\nb\x00c\n"}, r"train\.de:2: a NUL character"),
        ({"test_en": b"a\nb\xff\n"}, r"test\.en:2: invalid UTF-8"),
    ],
)
def test_an_error_in_the_files_names_file_and_count_or_line(tmp_path, contents, wanted):
    with pytest.raises(ValueError, match=wanted) as error:
        user_corpus(files(tmp_path, **contents), "de", "en")
    assert "\n" not in str(error.value)


def test_a_missing_file_is_named_in_the_error(tmp_path):
    (files(tmp_path) / "valid.en").unlink()
    with pytest.raises(ValueError, match=r"valid\.en is missing"):
        user_corpus(tmp_path, "de", "en")


def test_other_line_separators_become_spaces():
    text = "a\u2028b\x85c\x0bd\re\r\n f \n".encode()
    assert decode(text, "x") == ["a b c d e", "f"]


@given(st.lists(st.text().filter(lambda line: "\n" not in line and "\0" not in line), min_size=1))
def test_only_a_line_feed_ends_a_line(lines):
    data = "".join(line + "\n" for line in lines).encode()
    if not data.startswith(b"\xef\xbb\xbf"):
        assert decode(data, "x") == [" ".join(line.split()) for line in lines]


def test_a_byte_order_mark_is_removed_with_a_warning(capsys):
    assert decode(b"\xef\xbb\xbfa\n", "train.de") == ["a"]
    assert "train.de: removed the byte-order mark" in capsys.readouterr().err


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """A folder with a lock file of six files, and a mirror of its base address."""
    record = {"base": "https://nowhere.invalid", "files": {}}
    (tmp_path / "mirror/data").mkdir(parents=True)
    for split in SPLITS:
        for language in ("de", "en"):
            data = gzip.compress(f"{split} {language}\nzwei\n".encode(), mtime=0)
            path = f"data/{split}.{language}.gz"
            (tmp_path / "mirror" / path).write_bytes(data)
            digest = hashlib.sha256(data).hexdigest()
            record["files"][f"{split}.{language}"] = {"path": path, "size": len(data), "sha256": digest, "lines": 2}
    (tmp_path / "some.lock").write_text(json.dumps(record))
    monkeypatch.setenv("CORPUS_MIRROR", (tmp_path / "mirror").as_uri())
    return tmp_path


def download(folder):
    (folder / "got").mkdir(exist_ok=True)
    return locked_corpus(folder / "some.lock", "de", "en", folder / "got", lambda name, size: lambda count: None)


@pytest.mark.parametrize("as_folder", [False, True])
def test_a_locked_corpus_comes_from_the_mirror(mirror, monkeypatch, as_folder):
    if as_folder:
        monkeypatch.setenv("CORPUS_MIRROR", str(mirror / "mirror"))
    assert download(mirror)["valid", "source"] == ["valid de", "zwei"]


def test_a_file_with_a_wrong_checksum_is_deleted_unread(mirror):
    path = mirror / "mirror/data/train.en.gz"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(ValueError, match=r"train\.en\.gz: sha256 [0-9a-f]{64} is not the locked [0-9a-f]{64}"):
        download(mirror)
    assert not (mirror / "got/train.en.gz").exists()


def test_a_download_longer_than_its_lock_entry_is_cut_off_and_refused(mirror):
    path = mirror / "mirror/data/train.de.gz"
    path.write_bytes(path.read_bytes() + bytes(10_000_000))
    taken = []
    entry = json.loads((mirror / "some.lock").read_text())["files"]["train.de"]
    with pytest.raises(ValueError, match="is not the locked"):
        fetch(path.as_uri(), mirror / "got.gz", entry, taken.append)
    assert sum(taken) < 200_000


def test_a_failed_download_names_its_address_and_corpus_mirror(mirror):
    (mirror / "mirror/data/test.de.gz").unlink()
    with pytest.raises(ValueError, match=r"test\.de\.gz: cannot download .*CORPUS_MIRROR"):
        download(mirror)


class Mirror(BaseHTTPRequestHandler):
    """Answers who knows the password with the file's name; for a name with "broken" ends its chunked answer early."""

    protocol_version = "HTTP/1.1"
    close_connection = True

    def do_GET(self) -> None:
        if "redirected" in self.path:
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{self.server.server_address[1]}/there")
            self.end_headers()
            return
        allowed = self.headers["Authorization"] == "Basic " + base64.b64encode(b"me:ge/h@eim").decode()
        self.send_response(200 if allowed else 401)
        if "broken" in self.path:
            self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b"ffff\r\nhalf" if "broken" in self.path else self.path.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def private(monkeypatch) -> Iterator[str]:
    """The address of a mirror, with user and password."""
    with HTTPServer(("127.0.0.1", 0), Mirror) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://me:ge%2Fh@eim@127.0.0.1:{server.server_address[1]}"
        monkeypatch.setenv("CORPUS_MIRROR", address)
        yield address
        server.shutdown()


def test_a_mirror_with_a_password_is_used_and_another_host_does_not_get_it(private, tmp_path):
    digest = hashlib.sha256(b"/a").hexdigest()
    fetch(f"{private}/a", tmp_path / "a", {"size": 2, "sha256": digest}, lambda count: None)
    with pytest.raises(ValueError, match=r"cannot download \(Unauthorized\)"):
        fetch(f"{private}/redirected", tmp_path / "a", {"size": 2, "sha256": digest}, lambda count: None)


@pytest.mark.parametrize("name", ["broken", "other", "broken?password=ge/h@eim"])
def test_a_failed_download_shows_no_password_and_leaves_nothing(private, tmp_path, name):
    with pytest.raises(ValueError, match=r"cannot download|is not the locked") as error:
        fetch(f"{private}/{name}", tmp_path / "a", {"size": 2, "sha256": "0"}, lambda count: None)
    assert not any(part in str(error.value) for part in ("ge%2Fh", "ge/h", "eim"))
    assert "127.0.0.1" in str(error.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text",
    ["postgresql://me:ge/h@eim@host/runs", "http://host/?password=ge/h@eim&x=1", "http://host/a?sslpassword=ge/h@eim",
     "nonnumeric port: 'ge/h@eim'", "bad: ge%2Fh@eim"],
)  # fmt: skip
def test_a_message_hides_passwords_in_users_fields_and_on_their_own(monkeypatch, text):
    monkeypatch.setenv("CORPUS_MIRROR", "http://me:ge%2Fh@eim@host")
    assert not any(part in mask_credentials(text) for part in ("ge/h", "ge%2F", "eim"))


def test_a_language_missing_from_the_lock_file_is_refused_with_the_languages_it_has(mirror):
    with pytest.raises(ValueError, match=r"no language 'fr'; set source and target to \['de', 'en'\]"):
        locked_corpus(mirror / "some.lock", "fr", "en", mirror, lambda name, size: lambda count: None)


def test_the_copy_corpus_repeats_ten_numbers():
    corpus = copy_corpus()
    assert corpus == copy_corpus()
    assert corpus["test", "source"][0] == "1 2 3 4 5 6 7 8 9 10"
    for split in SPLITS:
        assert corpus[split, "source"] == corpus[split, "target"]
        assert all(len(line.split()) == 10 for line in corpus[split, "source"])
    assert not set(corpus["test", "source"]) & set(corpus["train", "source"])
