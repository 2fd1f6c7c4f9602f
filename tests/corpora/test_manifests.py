"""Manifests: where texts are, what a mirror replaces, what is refused without a checksum; and the real archives."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from transformer.corpora.fetching import fetch_all
from transformer.corpora.manifest import Manifest

ROOT = Path(__file__).parents[2]
MANIFESTS = sorted((ROOT / "corpora").glob("*.json"))
PAIR = ("de", "en")


@pytest.fixture
def made(tmp_path, monkeypatch) -> Callable[..., Manifest]:
    """Makes a manifest of a corpus with three splits, and a mirror of its base; changes: to it."""

    def make(**changes) -> Manifest:
        files, splits = {}, {}
        (tmp_path / "mirror/data").mkdir(parents=True, exist_ok=True)
        for split in ("train", "valid", "test_a"):
            for language in PAIR:
                data = gzip.compress(f"{split} {language}\nzwei\n".encode(), mtime=0)
                name = f"{split}.{language}.gz"
                (tmp_path / "mirror/data" / name).write_bytes(data)
                files[name] = {
                    "addresses": [f"https://nowhere.invalid/base/data/{name}"],
                    "size": len(data),
                    "sha256": hashlib.sha256(data).hexdigest(),
                }
                splits.setdefault(split, {})[language] = [{"file": name, "lines": 2}]
        record = {"corpus": "some", "bases": ["https://nowhere.invalid/base"], "files": files, "splits": splits}
        (tmp_path / "some.json").write_text(json.dumps(record | changes))
        monkeypatch.setenv("CORPUS_MIRROR", str(tmp_path / "mirror"))
        return Manifest.load(tmp_path / "some.json")

    return make


def texts(manifest: Manifest, folder: Path, *splits: str) -> dict[str, list[tuple[str, str]]]:
    """All pairs of some splits, fetched and checked."""
    places = fetch_all(manifest.downloads(splits, *PAIR), folder / "got", lambda count: None)
    return {split: [pair for part in manifest.texts(split, *PAIR, places) for pair in part.pairs()] for split in splits}


@pytest.mark.parametrize("as_address", [False, True])
def test_a_locked_corpus_comes_from_the_mirror(made, tmp_path, monkeypatch, as_address):
    manifest = made()
    if as_address:
        monkeypatch.setenv("CORPUS_MIRROR", (tmp_path / "mirror").as_uri())
    assert texts(manifest, tmp_path, "valid", "test_a")["valid"] == [("valid de", "valid en"), ("zwei", "zwei")]


def test_a_mirror_of_several_bases_is_asked_by_host_first_then_itself(made, monkeypatch):
    manifest = made(bases=["https://nowhere.invalid/base", "https://other.invalid"])
    monkeypatch.setenv("CORPUS_MIRROR", "https://mirror.invalid/m/")
    assert manifest.download("train.de.gz").addresses == (
        "https://mirror.invalid/m/nowhere.invalid/base/data/train.de.gz",
        "https://mirror.invalid/m/data/train.de.gz",
    )
    monkeypatch.setenv("CORPUS_MIRROR", "https://me:two words@mirror.invalid/m/")
    with pytest.raises(ValueError, match="CORPUS_MIRROR is not an address"):
        manifest.download("train.de.gz")
    monkeypatch.delenv("CORPUS_MIRROR")
    assert manifest.download("train.de.gz").addresses == ("https://nowhere.invalid/base/data/train.de.gz",)


def test_a_wrong_byte_and_a_wrong_number_of_lines_are_refused(made, tmp_path):
    manifest = made()
    path = tmp_path / "mirror/data/train.en.gz"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(ValueError, match=r"train\.en\.gz: sha256 [0-9a-f]{64} is not [0-9a-f]{64}"):
        texts(manifest, tmp_path, "train")
    manifest.content["splits"]["valid"]["de"][0]["lines"] = 3
    with pytest.raises(ValueError, match=r"valid\.de\.gz has 2 lines, but its manifest in corpora/ says 3"):
        texts(manifest, tmp_path, "valid")


def test_a_file_without_a_sum_is_refused_with_the_command_that_locks_it(made):
    manifest = made()
    manifest.content["files"]["train.de.gz"]["sha256"] = None
    with pytest.raises(ValueError, match=r"no sha256 of train\.de\.gz\."):
        manifest.downloads(["train"], *PAIR)
    assert manifest.downloads(["valid"], *PAIR)


def test_another_file_with_the_same_texts_stands_in(made, tmp_path):
    manifest = made()
    other = dict(manifest.content["files"]["train.de.gz"])
    (tmp_path / "mirror/data/copy.de.gz").write_bytes((tmp_path / "mirror/data/train.de.gz").read_bytes())
    manifest.content["files"]["copy.de.gz"] = other | {"addresses": ["https://nowhere.invalid/base/data/copy.de.gz"]}
    manifest.content["files"]["train.de.gz"]["fallback"] = "copy.de.gz"
    (tmp_path / "mirror/data/train.de.gz").unlink()
    assert texts(manifest, tmp_path, "train")["train"][0] == ("train de", "train en")
    manifest.content["files"]["train.de.gz"]["sha256"] = None
    assert texts(manifest, tmp_path, "train")["train"][0] == ("train de", "train en")


def test_a_missing_language_or_test_set_is_refused_with_those_there_are(made):
    manifest = made()
    with pytest.raises(ValueError, match=r"fr-en is not in this corpus; set source and target to two of de, en"):
        manifest.downloads(["train"], "fr", "en")
    with pytest.raises(ValueError, match=r"no test set test_b in de and en; test_sets may name test_a"):
        manifest.downloads(["test_b"], *PAIR)


SHAPES = [
    '{"bases": 1, "files": {}, "splits": {"train": {}}}',
    '{"bases": [], "files": {"a": 1}, "splits": {"train": {}}}',
    '{"bases": [], "files": {}, "splits": {"train": {"de": [1]}}}',
    '{"bases": [], "files": {"a": {"addresses": [3], "size": 1, "sha256": null}}, "splits": {}}',
    "[" * 100_000,
]


@pytest.mark.parametrize("content", ["{", "[]", "", *SHAPES], ids=range(8))
def test_a_file_that_is_no_lock_file_is_named(tmp_path, content):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(ValueError, match=r"a\.json is no manifest"):
        Manifest.load(tmp_path / "a.json")


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_the_lock_files_of_the_project_name_files_and_parts_that_they_describe(path):
    manifest = Manifest.load(path)
    assert manifest.content["corpus"] == path.stem
    assert manifest.content["licence"]
    for entry in manifest.content["files"].values():
        assert entry["sha256"] is None or len(entry["sha256"]) == 64
        assert entry.get("fallback", next(iter(manifest.content["files"]))) in manifest.content["files"]
        for address in entry["addresses"]:
            assert any(address.startswith(f"{base}/") for base in manifest.content["bases"])
    for texts_of in manifest.content["splits"].values():
        for part in (part for parts in texts_of.values() for part in parts):
            assert part["file"] in manifest.content["files"]
    assert {"train", "valid"} < set(manifest.content["splits"])
