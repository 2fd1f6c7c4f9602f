"""A corpus is checked before it is used: it is accepted whole, or refused with file, line and character."""

from __future__ import annotations

import gzip
import io
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.tiny import ROOT

from transformer.corpora.parallel_text import TwoFiles, user_splits
from transformer.corpora.text_files import Lines, lines_of
from transformer.files import sha256_text

SPLITS = ("train", "valid", "test")


def lines(data: bytes, name: str = "x") -> Lines:
    """The lines of some bytes."""

    @contextmanager
    def opened():
        yield io.BytesIO(data)

    return Lines(name, opened)


def files(folder: Path, **contents: bytes) -> Path:
    """A folder of parallel files, two lines each, with some contents replaced: train_de=b'...'."""
    folder.mkdir(exist_ok=True)
    for split in SPLITS:
        for language in ("de", "en"):
            (folder / f"{split}.{language}").write_bytes(contents.get(f"{split}_{language}", b"eins\nzwei\n"))
    return folder


def read(folder: Path, splits=SPLITS, source="de", target="en") -> dict[str, list[tuple[str, str]]]:
    """All pairs of a user's folder."""
    texts = user_splits(folder, splits, source, target)
    return {split: [pair for part in parts for pair in part.pairs()] for split, parts in texts.items()}


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        ({"train_de": b"a\nb\nc\nd\ne\n"}, r"train\.de has 5 lines and .*train\.en 2, 3 fewer"),
        ({"valid_en": b"a\nb\nc\n"}, r"valid\.en has 3 lines and .*valid\.de 2, 1 fewer"),
        ({"train_de": b"a\nb\x00c\n"}, r"train\.de:2:2: a NUL character"),
        ({"test_en": "a\nÄb\x00".encode()}, r"test\.en:2:3: a NUL character"),
        ({"test_en": "a\nÄb".encode() + b"\xff\n"}, r"test\.en:2:3: not UTF-8"),
        ({"test_en": b"a\n\xed\xa0\x80\n"}, r"test\.en:2:1: not UTF-8"),
    ],
)
def test_an_error_in_the_files_names_file_line_and_character(tmp_path, contents, expected):
    with pytest.raises(ValueError, match=expected) as error:
        read(files(tmp_path, **contents))
    assert "\n" not in str(error.value)


def test_a_missing_file_is_named_with_what_is_there(tmp_path):
    (files(tmp_path) / "valid.en").unlink()
    with pytest.raises(ValueError, match=r"valid\.en is missing, the other side of .*valid\.de"):
        read(tmp_path)
    with pytest.raises(ValueError, match=r"has no text of newstest: newstest\.de and newstest\.en.*It has test\.de"):
        read(tmp_path, ("newstest",))


@pytest.mark.parametrize("separator", ["\u2028", "\x85", "\x0b", "\r", "\x0c", "\x1c"])
def test_a_tool_that_splits_at_other_characters_is_suspected(tmp_path, separator):
    text = f"a{separator}b\nc\nd{separator}e\n"
    with pytest.raises(ValueError, match="must translate line n") as error:
        read(files(tmp_path, train_de="\n".join(text.splitlines()).encode(), train_en=text.encode()))
    expected = f"has 2 characters that some tools take for line ends (the first: U+{ord(separator):04X} in line 1)"
    assert expected in str(error.value)


@given(st.binary(max_size=60), st.binary(max_size=60))
@example(b"", b"\n")
@settings(deadline=None, max_examples=200)
def test_any_two_files_are_accepted_whole_or_refused_with_an_address(source, target):
    text = TwoFiles(lines(source, "a.de"), lines(target, "a.en"))
    contents = [data.removeprefix(b"\xef\xbb\xbf") for data in (source, target)]
    counts = [data.count(b"\n") + (not data.endswith(b"\n")) if data else 0 for data in (source, target)]
    if counts[0] != counts[1] or b"\0" in source + target or not all(map(is_utf8, contents)):
        at = r"a\.(de|en):\d+:\d+: (a NUL character|not UTF-8)|a\.(de|en) has \d+ lines and a\.(de|en) \d+"
        with pytest.raises(ValueError, match=at):
            list(text.pairs())
        return
    pairs = list(text.pairs())
    for data, side in zip(contents, (0, 1), strict=True):
        expected = (
            [" ".join(line.split()) for line in data.decode().removesuffix("\n").split("\n")] if counts[0] else []
        )
        assert [pair[side] for pair in pairs] == expected


def is_utf8(data: bytes) -> bool:
    """Whether bytes are valid UTF-8."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def test_a_byte_order_mark_is_removed_with_a_warning(capsys):
    assert list(lines(b"\xef\xbb\xbfa\n", "train.de")) == ["a"]
    assert "train.de: removed the byte-order mark" in capsys.readouterr().err


def test_compressed_files_are_read_and_damaged_ones_named(tmp_path):
    chance = b"".join(b"%d\n" % (n * 7919 % 10007) for n in range(10_000))
    for split in SPLITS:
        for language in ("de", "en"):
            (tmp_path / f"{split}.{language}.gz").write_bytes(gzip.compress(chance))
    assert len(read(tmp_path)["train"]) == 10_000
    path = tmp_path / "train.de.gz"
    path.write_bytes(path.read_bytes() + gzip.compress(b"one more\n"))  # such files may be joined
    (tmp_path / "train.en.gz").write_bytes(gzip.compress(chance + b"one more\n"))
    assert read(tmp_path)["train"][-1] == ("one more", "one more")
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(ValueError, match=r"train\.de\.gz is damaged after line \d+"):
        read(tmp_path)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_line_without_end_is_refused_while_it_is_read(tmp_path, suffix):
    """The rest of the file, which is damaged, is not read."""
    pack = {"": bytes, ".gz": gzip.compress}[suffix]
    path = tmp_path / f"train.de{suffix}"
    path.write_bytes(pack(b"a\n" + bytes(2_500_000)) + b"\n\xff")
    with pytest.raises(ValueError, match=rf"train\.de{suffix}:2: a line of more than 1,000,000 bytes"):
        list(lines_of(path))


def test_training_text_comes_from_all_its_files_in_order(tmp_path):
    files(tmp_path)
    (tmp_path / "train-b.de").write_text("b\n")
    (tmp_path / "train-b.en.gz").write_bytes(gzip.compress(b"B\n"))
    (tmp_path / "train-a.en-de.tsv").write_text("A\ta\nA2\ta2\n")
    (tmp_path / "train-c.jsonl").write_text('{"de": "c", "en": "C"}\n{"translation": {"en": "C2", "de": "c2"}}\n')
    assert read(tmp_path)["train"] == [
        ("a", "A"),
        ("a2", "A2"),
        ("b", "B"),
        ("c", "C"),
        ("c2", "C2"),
        ("eins", "eins"),
        ("zwei", "zwei"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("train.de-en.tsv", "a\tb\na b\n", r"train\.de-en\.tsv:2: 1 columns, must be 2"),
        (
            "train.jsonl",
            '{"de": "a", "en": "b"}\n{"de": "a"}\n',
            r"train\.jsonl:2: no object with the texts de and en\. Its keys are 'de'\.$",
        ),
        ("train.jsonl", '["a", "b"]\n', r"train\.jsonl:1: no object with the texts de and en\. It has no object\.$"),
        ("train.jsonl", '{"de": "a", "en": "\\ud800"}\n', r"train\.jsonl:1: .*half a character in a text"),
        ("train.jsonl", "[" * 200_000 + "\n", r"train\.jsonl:1: not JSON"),
        ("train.jsonl", '{"de": "a", "en": "b\\u0000"}\n', r"train\.jsonl:1: a NUL character or"),
    ],
)
def test_a_wrong_line_of_pairs_is_named(tmp_path, name, text, expected):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=expected):
        read(tmp_path, ("train",))


def test_the_columns_of_a_tsv_are_those_of_the_end_of_its_name(tmp_path):
    files(tmp_path)
    (tmp_path / "train.part-1.de-en.tsv").write_text("ein Haus\ta house\n")
    assert ("ein Haus", "a house") in read(tmp_path)["train"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other/test.pt-BR-en.tsv").write_text("casa\thouse\n")
    assert read(tmp_path / "other", ("test",), "pt-BR", "en")["test"] == [("casa", "house")]


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("de-en", "de\ten"),
        ("en-de", "EN\tde "),
        ("de-en", "de_DE\ten-US"),
        ("de-en", "\"de\"\t'en'"),
        ("de-en", "source\ttarget"),
        ("de-en", "tgt\tsrc"),
    ],
)
def test_a_header_line_of_a_tsv_is_no_pair(tmp_path, capsys, name, header):
    (tmp_path / f"train.{name}.tsv").write_text(f"{header}\na\ta\n{header}\n")
    assert read(tmp_path, ("train",))["train"][0] == ("a", "a")
    assert len(read(tmp_path, ("train",))["train"]) == 2  # only the first line can be a header
    assert "tsv:1: left out, since " in capsys.readouterr().err


@pytest.mark.parametrize("name", ["dev", "val", "validation", "devtest"])
def test_valid_may_have_another_common_name(tmp_path, capsys, name):
    files(tmp_path)
    (tmp_path / f"{name}.jsonl").write_text('{"de": "x", "en": "y"}\n')
    assert len(read(tmp_path)["valid"]) == 2  # valid.de and valid.en come first
    for language in ("de", "en"):
        (tmp_path / f"valid.{language}").unlink()
    assert capsys.readouterr().err == ""
    assert read(tmp_path)["valid"] == [("x", "y")]
    assert capsys.readouterr().err == f"{tmp_path} has no text named valid: {name}.jsonl took its place\n"
    with pytest.raises(ValueError, match="has no text of valid"):
        read(tmp_path, ("valid", name))  # a test set of this name


def test_files_of_other_names_do_not_join_valid_and_test(tmp_path):
    files(tmp_path)
    (tmp_path / "test.2017.jsonl").write_text('{"de": "x", "en": "y"}\n')
    (tmp_path / "valid.old.de-en.tsv").write_text("x\ty\n")
    assert len(read(tmp_path)["test"]) == len(read(tmp_path)["valid"]) == 2


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        (["train.de.gz"], r"train\.de and .*train\.de\.gz are both train\.de"),
        (["train.jsonl", "train.jsonl.gz"], r"train\.jsonl and .*train\.jsonl\.gz are both train\.jsonl"),
        (["train.jsonl"], r"train\.jsonl and .*train\.de are both text train\. Its pairs would be there twice"),
        (["train.en-de.tsv"], r"train\.en-de\.tsv and .*train\.de are both text train"),
    ],
)
def test_a_text_that_is_there_twice_is_refused(tmp_path, extra, reason):
    files(tmp_path)
    for name in extra:
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(ValueError, match=reason):
        read(tmp_path)


@pytest.mark.parametrize(("name", "digest"), [("toy", "d7120b4f2805590d"), ("copy", "481717e3d7e5a433")])
def test_the_built_in_text_is_the_text_of_the_published_results(name, digest):
    texts = user_splits(ROOT / "corpora" / name, ("train", "valid", "test"), "de", "en")
    lines = ["\t".join(pair) for parts in texts.values() for part in parts for pair in part.pairs()]
    assert sha256_text("\n".join(lines))[:16] == digest
