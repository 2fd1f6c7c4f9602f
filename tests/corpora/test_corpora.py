"""A corpus is checked before it is used: an error names file and line, and a bad download is deleted."""

import gzip
import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.corpora.copy_task import copy_corpus
from transformer.corpora.parallel_files import decode, fetch, locked_corpus, user_corpus

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
