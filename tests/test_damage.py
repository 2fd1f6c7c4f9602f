"""A damaged model folder, params.yaml or corpus ends in one short printable line, in bounded time and memory."""

from __future__ import annotations

import gzip
import json
import locale
import os
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiny import TEXT, model_folder

from pipeline import download
from pipeline.workflow import stage
from pipeline.workflow.params import Params
from transformer.__main__ import main as translate
from transformer.files import Mistake, UnreadableInput, is_bug, read_json
from transformer.inference.ctranslate2_export import add_export
from transformer.model_folder import FILES, WORDS
from transformer.text.pairs import load_array

ROOT = Path(__file__).parents[1]
TOY = (ROOT / "recipes/toy.yaml").read_text(encoding="utf-8")
SECONDS, BYTES, LETTERS = 10, 10**9, 600  # most of a case: time, memory beside that of before, length of its message
COUNTS = [pytest.param(40), pytest.param(1_700, marks=pytest.mark.full)]

ODD_BYTES = [b"", b"\0", b"\n", b"\r", b"\t", b"\xff", b"\xef\xbb\xbf", b"\x1b[2J", b"\xe2\x80\xa8", b'"', b"'"]
ODD_BYTES += [b"[", b"]", b"{", b": ", b"&a ", b"*a", b"null", b"NaN", b"9" * 5000, b"a" * 1_100_000]
ODD_BYTES += [b"[" * 100_000, b"- " * 50_000]
ODD_VALUES = [None, True, -1, 0, 1, 3, 10**9, 10**30, 1.5, 1e400, "", "a", "\x1b[2J\r\n", "x" * 10**5]
ODD_VALUES += [[], [[1]], {}, {"a": {}}]
ODD_YAML = ["!!bool maybe", "!!int x", "!!float x", "!!timestamp x", "!!binary x", "!!omap [1]", "!!set [1]", "!!a/b c"]
ODD_YAML += ["*a", "&a [*a]", "{<<: 1}", "? [1]", "{[1]: 2}", "2000-99-99", "1:60:60", ".inf", "-.nan", "|", "%a"]
ODD_YAML += ["0x" + "f" * 9999, "9" * 5000]


@st.composite
def edits(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """A function that cuts a piece out of some bytes, or writes other bytes there."""
    start, length, new = draw(st.floats(0, 1)), draw(st.sampled_from([0, 1, 8, 1000, 10**9])), draw(PIECES)

    def edit(data: bytes) -> bytes:
        place = int(start * len(data))
        return data[:place] + new + data[place + length :]

    return edit


PIECES = st.sampled_from(ODD_BYTES) | st.binary(max_size=8)


def damage_file(path: Path, edit: Callable[[bytes], bytes], kind: str) -> None:
    """Change the bytes of a file, or put something else in its place. kind: of the damage."""
    data = path.read_bytes() if kind == "edit" else b""
    path.unlink()
    if kind == "edit":
        path.write_bytes(edit(data))
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind != "missing":
        path.symlink_to({"device": "/dev/zero", "loop": path.name}[kind])


KINDS = st.sampled_from(["edit"] * 16 + ["missing", "folder", "pipe", "device", "loop"])


def exit_code(program: Callable[[], Any]) -> Any:
    """The exit code of a program; None if it succeeds."""
    try:
        program()
    except SystemExit as end:
        return end.code
    return None


def check_end(program: Callable[[], Any]) -> None:
    """Assert that a program succeeds, or ends in one line that can be printed, after SECONDS of computing at most."""
    start = time.process_time()
    code = exit_code(program)
    assert time.process_time() - start < SECONDS
    if code is not None:
        assert isinstance(code, str), code
        assert code.startswith("error: ")
        assert code.isprintable()
        assert len(code) < LETTERS, code


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Assert that this process needs at most BYTES more in the block than before."""
    unit = 1 if sys.platform == "darwin" else 1024
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit < BYTES


def each(count: int, **strategies: st.SearchStrategy) -> Callable:
    """Run a function for `count` cases, which are the same each time."""
    options = settings(max_examples=count, deadline=None, derandomize=True, database=None)
    return lambda function: options(given(**strategies)(function))


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A model folder with an export and the words of its training text."""
    folder = model_folder(tmp_path_factory.mktemp("damage") / "model")
    (folder / WORDS).write_text("ein 2\n", encoding="utf-8")
    add_export(folder, folder, "float32")
    return folder


@pytest.mark.parametrize("count", COUNTS)
def test_a_damaged_model_folder_ends_in_one_line(model, tmp_path, monkeypatch, count):
    monkeypatch.chdir(tmp_path)
    Path("source").write_text(f"{TEXT[0]}\n", encoding="utf-8")
    sizes = json.loads((model / "model.json").read_text())
    keys = [*sizes, *(f"sizes.{name}" for name in sizes["sizes"]), "more", "sizes.more"]
    values = st.none() | st.tuples(st.sampled_from(keys), st.sampled_from(ODD_VALUES))

    @each(
        count,
        name=st.sampled_from(FILES),
        edit=edits(),
        kind=KINDS,
        value=values,
        engine=st.sampled_from(["auto", "torch"]),
    )
    def check(name, edit, kind, value, engine):
        shutil.rmtree("model", ignore_errors=True)
        shutil.copytree(model, "model")
        if value is None:
            damage_file(Path("model", name), edit, kind)
        else:
            part, _, size = value[0].partition(".")
            content = {**sizes[part], size: value[1]} if size else value[1]
            Path("model/model.json").write_text(json.dumps(sizes | {part: content}))
        options = ["model", "--input", "source", "--output", os.devnull, "--engine", engine, "--extra-length", "1"]
        monkeypatch.setattr(sys, "argv", ["transformer", *options])
        check_end(translate)

    with bounded_memory():
        check()


@pytest.mark.parametrize("count", COUNTS)
def test_a_damaged_params_file_ends_in_one_line(tmp_path, monkeypatch, count):
    monkeypatch.chdir(tmp_path)
    path = Path("params.yaml")
    values = st.sampled_from(ODD_YAML) | st.sampled_from(ODD_VALUES).map(json.dumps) | st.text(max_size=20)

    @each(
        count,
        edit=edits(),
        kind=KINDS,
        value=st.none() | st.tuples(st.sampled_from(sorted(Params.model_fields)), values),
    )
    def check(edit, kind, value):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        path.write_text(TOY, encoding="utf-8")
        if value is None:
            damage_file(path, edit, kind)
        else:
            lines = [f"{value[0]}: {value[1]}" if line.startswith(f"{value[0]}:") else line for line in TOY.split("\n")]
            path.write_text("\n".join(lines), encoding="utf-8", errors="replace")
        check_end(lambda: stage.run(lambda: Params.load(path)))

    with bounded_memory():
        check()


PAIRS = ["Ein Hund .\tA dog .", "Zwei Männer .\tTwo men .", "Gras\tGrass"]
SIDES = ["".join(line.split("\t")[side] + "\n" for line in PAIRS).encode() for side in (0, 1)]
FORMS = {
    "train.de": SIDES[0],
    "train.en.gz": gzip.compress(SIDES[1], mtime=0),
    "train-b.de.gz": gzip.compress(SIDES[0], mtime=0),
    "train-b.en": SIDES[1],
    "valid.de-en.tsv": "\n".join(PAIRS).encode(),
    "test.jsonl": "\n".join(
        json.dumps(dict(zip(("de", "en"), line.split("\t"), strict=True))) for line in PAIRS
    ).encode(),
}


@pytest.mark.parametrize("count", COUNTS)
def test_a_damaged_corpus_ends_in_one_line(tmp_path, monkeypatch, count):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(download, "splitter_of", lambda *_: None)  # asks spaCy
    monkeypatch.setattr(sys, "argv", ["download", "--raw", "raw"])
    text = TOY.replace("corpus: corpora/toy", "corpus: corpus")
    Path("params.yaml").write_text(text, encoding="utf-8")

    @each(count, name=st.sampled_from(sorted(FORMS)), edit=edits(), kind=KINDS, packed=st.booleans())
    def check(name, edit, kind, packed):
        shutil.rmtree("corpus", ignore_errors=True)
        Path("corpus").mkdir()
        for each_name, data in FORMS.items():
            Path("corpus", each_name).write_bytes(data)
        path = Path("corpus", name)
        damage_file(path, edit, kind)
        if kind == "edit" and packed:  # the text is damaged, not its archive
            path.write_bytes(packed_again(name, edit))
        check_end(lambda: stage.run(download.main))

    with bounded_memory():
        check()


def packed_again(name: str, edit: Callable[[bytes], bytes]) -> bytes:
    """The bytes of a corpus file with a damaged text."""
    if name.endswith(".gz"):
        return gzip.compress(edit(gzip.decompress(FORMS[name])), mtime=0)
    return edit(FORMS[name])


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY\x01", b"x" * 300])
def test_a_damaged_array_is_named_with_what_makes_it(tmp_path, damage):
    (tmp_path / "a.npy").write_bytes(damage)
    with pytest.raises(UnreadableInput, match=r"a\.npy is damaged \("):
        load_array(tmp_path / "a.npy")
    with pytest.raises(UnreadableInput, match=r"a\.npy is damaged \(no JSON"):
        read_json(tmp_path / "a.npy")


def fail(kind: type[Exception]) -> None:
    raise kind("ours")


@pytest.mark.parametrize(
    ("raising", "bug"),
    [
        (lambda: json.loads("{"), False),  # a library's, of any class
        (lambda: locale.setlocale(locale.LC_ALL, "nowhere"), False),
        (lambda: fail(ValueError), True),
        (lambda: fail(KeyError), True),
        (lambda: fail(Mistake), False),
        (lambda: open("/nowhere/a"), False),  # noqa: SIM115
        (lambda: read_json(None), True),  # type: ignore[arg-type]
    ],
)
def test_a_bug_is_what_our_own_code_raised_and_no_mistake(raising, bug):
    with pytest.raises(Exception) as error:  # noqa: PT011
        raising()
    assert is_bug(error.value) == bug
