"""The command line: `python -m transformer` translates files, lines of a pipe, and lines that a user types."""

from __future__ import annotations

import gzip
import io
import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest
from support.tiny import ROOT, TEXT, model_folder

from transformer.__main__ import main
from transformer.inference.ctranslate2_export import add_export
from transformer.inference.lines import line_groups, parts_folder
from transformer.inference.translator import Translator


@pytest.fixture
def run(monkeypatch, capsys) -> Callable[..., str]:
    """A function that runs `python -m transformer` with some options and returns what it printed."""

    def run(*options: object, text: bytes = b"") -> str:
        monkeypatch.setattr(sys, "argv", ["transformer", *map(str, options)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        main()
        return capsys.readouterr().out

    return run


def test_a_line_is_answered_while_the_input_is_open_without_torch(tmp_path):
    """Neither torch nor spaCy's command line is imported: they take longer than the translation."""
    folder = model_folder(tmp_path / "model")
    add_export(folder, folder, "float32")
    command = [sys.executable, "-X", "importtime", "-m", "transformer", str(folder), "--extra-length", "0"]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=ROOT)
    assert process.stdin
    assert process.stdout
    answers = []
    for line in TEXT[:2]:
        process.stdin.write(f"{line}\n".encode())
        process.stdin.flush()
        answers.append(process.stdout.readline().decode().removesuffix("\n"))
    assert process.communicate() == (b"", None)
    assert answers == Translator.load(folder).translate(TEXT[:2], extra_length=0)
    imported = {line.rpartition("|")[2].strip() for line in (tmp_path / "log").read_text().split("\n")}
    assert {"ctranslate2", "spacy"} <= imported
    assert not imported & {"torch._C", "spacy.cli", "pandas", "mlflow", "safetensors"}


needs_full_device = pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has it")


def error_of(run: Callable[..., str], *options: object, text: bytes = b"a\n") -> str:
    """The error message of a command that fails: one line."""
    with pytest.raises(SystemExit) as ended:
        run(*options, text=text)
    assert isinstance(ended.value.code, str)
    assert ended.value.code.startswith("error: ")
    assert "\n" not in ended.value.code
    return ended.value.code


def test_a_catalogue_is_filled_in_place(folder, translator, tmp_path, run, capsys):
    polib = pytest.importorskip("polib")
    path = tmp_path / "a.po"
    path.write_text(f'msgid ""\nmsgstr "Language: en\\n"\n\nmsgid "{TEXT[0]}\\n\\n  {TEXT[1]}"\nmsgstr ""\n')
    assert "needs --output FILE" in error_of(run, folder, "--input", path)
    assert "needs --output FILE" in error_of(run, folder, "--input", path, "--output", "/dev/null")
    assert "`msgunfmt a.mo" in error_of(run, folder, "--input", "a.mo", "--output", path)
    capsys.readouterr()
    run(folder, "--input", path, "--output", path, "--extra-length", 4)
    (entry,) = polib.pofile(str(path))
    first, second = translator.translate(TEXT[:2], extra_length=4)
    assert (entry.msgstr, entry.fuzzy) == (f"{first}\n\n  {second}", True)


def test_a_file_is_translated_as_by_the_method_translate(folder, translator, tmp_path, run):
    source, target = tmp_path / "a.de", tmp_path / "a.en"
    lines = [*TEXT, "", "Hund\r", "Mann\u2028Hund"]
    source.write_bytes("\n".join(lines).encode())  # no line feed at the end
    options = ("--beam-size", 2, "--extra-length", 4)
    assert run(folder, "--input", source, "--output", target, *options) == ""
    assert target.read_text().split("\n")[:-1] == translator.translate(lines, beam_size=2, extra_length=4)
    assert run(folder, *options, text=source.read_bytes()) == target.read_text()


def test_pipes_are_read_once_and_written_through(folder, translator, tmp_path, run):
    """As are devices. The output may be a link to a pipe."""
    source, target, link = tmp_path / "in", tmp_path / "out", tmp_path / "link"
    os.mkfifo(source)
    os.mkfifo(target)
    link.symlink_to(target)
    read: list[str] = []
    ends = [
        Thread(target=source.write_text, args=("Hund\nMann\n",)),
        Thread(target=lambda: read.append(target.read_text())),
    ]
    for thread in ends:
        thread.start()
    run(folder, "--input", source, "--output", link, "--extra-length", 4)
    for thread in ends:
        thread.join()
    assert read[0].split("\n")[:-1] == translator.translate(["Hund", "Mann"], extra_length=4)
    assert link.is_symlink()
    assert target.is_fifo()


def test_a_file_that_is_open_is_not_replaced(folder, tmp_path):
    """As by `--output /dev/stdout >>all.txt`, of which nothing is lost."""
    path = tmp_path / "all.txt"
    path.write_text("kept\n")
    command = [sys.executable, "-m", "transformer", str(folder), "--output", "/dev/stdout"]
    with open(path, "a") as file:
        done = subprocess.run(command, cwd=ROOT, input="Hund\n", stdout=file, stderr=subprocess.PIPE, text=True)
    assert "/dev/stdout leads to a file. Nothing was translated. Leave out --output" in done.stderr
    assert path.read_text() == "kept\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a\nb\rc\r\n", r"standard input:2: a carriage return inside a line. Convert the line ends: tr '\\r' '\\n'"),
        (b"a\0b\n", "standard input:1:2: a NUL character"),
        ("Grüße\n".encode("cp1252"), "standard input:1:3: not UTF-8 .*iconv -f ENCODING -t UTF-8"),
    ],
)
def test_text_that_would_be_misread_is_refused(folder, run, text, message):
    assert re.search(message, error_of(run, folder, text=text))


def test_a_link_stays_and_only_its_target_is_replaced(folder, tmp_path, run):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there/a.en", tmp_path / "link"
    mine = tmp_path / "link.tmp"
    for path in (target, mine):
        path.write_text("old")
        path.chmod(0o600)
    link.symlink_to(target)
    run(folder, "--output", link, "--extra-length", 0, text=b"Hund\n")
    assert link.readlink() == target
    assert target.read_text() != mine.read_text() == "old"
    assert target.stat().st_mode & 0o777 == 0o600
    assert len(list(tmp_path.rglob("*"))) == 4


def test_a_compressed_input_is_read_or_the_remedy_named(folder, tmp_path, run):
    source = tmp_path / "a.de.gz"
    source.write_bytes(gzip.compress(b"Hund\nMann\n"))
    options = (folder, "--extra-length", 0, "--input", source)
    assert run(*options) == run(folder, "--extra-length", 0, text=b"Hund\nMann\n")
    source.write_bytes(source.read_bytes()[:-9])
    assert "a.de.gz is damaged after line" in error_of(run, *options)
    pieces = iter([b"a\n" + bytes(60_000), bytes(60_000)])
    with pytest.raises(ValueError, match="a:2: a line of more than 100,000 bytes"):  # no more of it is read
        list(line_groups(SimpleNamespace(read1=lambda size: next(pieces)), "a"))  # type: ignore[arg-type]
    assert "Type `zstd -dc a.zst | python -m transformer MODEL`" in error_of(run, folder, "--input", "a.zst")


def test_input_and_output_are_checked_before_the_model_is_loaded(tmp_path, run, monkeypatch):
    """The folder has no model, which is not what the messages are about."""
    assert f"{tmp_path}/a.de: No such file" in error_of(run, tmp_path, "--input", tmp_path / "a.de")
    (tmp_path / "link").symlink_to(tmp_path / "missing/a.en")
    assert f"{tmp_path}/missing does not exist" in error_of(run, tmp_path, "--output", tmp_path / "link")
    assert "a.tsv is no plain text" in error_of(run, tmp_path, "--input", "a.tsv")
    (tmp_path / "b.de").write_text("a\n", encoding="utf-8")
    both = "--input", tmp_path / "b.de", "--output", tmp_path / "b.de"
    assert "b.de is the input, which would be lost" in error_of(run, tmp_path, *both)
    monkeypatch.setattr(sys, "argv", ["transformer", str(tmp_path)])
    for stream, message in (("stdin", "There is no input"), ("stdout", "There is no output")):
        with monkeypatch.context() as closed:
            closed.setattr(sys, stream, None)  # as Python does for a closed one
            with pytest.raises(SystemExit, match=message):
                main()


@pytest.mark.parametrize(("end", "form"), [(".de", "{}"), (".po", 'msgid "{}"\nmsgstr ""\n')])
def test_a_stopped_translation_of_a_file_resumes(folder, tmp_path, run, monkeypatch, end, form):
    """It repeats only the part that it was stopped in. Other settings, lines or models use no part of it."""
    source, target, parts = tmp_path / f"a{end}", tmp_path / f"b{end}", tmp_path / f"b{end}.parts"
    source.write_text("".join(form.format(word) + "\n" for word in ("Hund", "Mann", "Gras", "Schach", "zwei")))
    options = (folder, "--input", source, "--output", target, "--extra-length")
    run(*options, 2)
    expected = target.read_text()
    target.unlink()
    translated: list[str] = []
    translate = Translator.translate_sentences

    def stopped_at(last: str) -> Callable:
        def method(translator: Translator, lines: list[str], *options, **settings):
            translated.extend(lines)
            if last in lines:
                raise KeyboardInterrupt
            return translate(translator, lines, *options, **settings)

        return method

    monkeypatch.setattr("transformer.inference.lines.PART_LINES", 2)
    monkeypatch.setattr(sys, "stderr", errors := io.StringIO())
    for last, extra_length, lines in (
        ("Schach", 2, ["Hund", "Mann", "Gras", "Schach"]),
        ("Hund", 3, ["Hund", "Mann"]),
        ("", 2, ["Gras", "Schach", "zwei"]),
    ):
        assert not target.exists()
        translated.clear()
        monkeypatch.setattr(Translator, "translate_sentences", stopped_at(last))
        with suppress(SystemExit):
            run(*options, extra_length)
        assert translated == lines
        if parts.exists():
            (parts / "mine").touch()
    assert target.read_text() == expected
    assert [path.name for path in parts.iterdir()] == ["mine"]
    assert errors.getvalue().endswith("remark: 2 lines of an earlier run are not looked at again\n")


def test_an_output_is_written_by_one_process_at_a_time(tmp_path):
    with parts_folder(tmp_path / "a") as folder:
        part = folder / f"{'0' * 64}.part"
        part.touch()
        with pytest.raises(ValueError, match="/a is being written by another process"), parts_folder(tmp_path / "a"):
            pass
        assert part.exists()
    assert not folder.exists()


def test_lines_are_split_into_sentences_and_odd_ones_named(translator, folder, tmp_path, run, monkeypatch):
    shutil.copytree(folder, tmp_path / "model")
    (tmp_path / "model/words.txt").write_text("Ein 2\nHund 1\nrennt 2\n")
    lines, options = ["Ein Hund. Ein Hund rennt.", "Ein Hund", "Zwei Hunde"], ("--extra-length", 1, "--beam-size", 1)
    errors = []
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(write=errors.append, flush=lambda: None, isatty=lambda: False))
    for split, more in ((True, ()), (False, ("--no-split",))):
        output = run(tmp_path / "model", *options, *more, text="".join(f"{line}\n" for line in lines).encode())
        assert output.split("\n")[:-1] == translator.translate(lines, split=split, extra_length=1, beam_size=1)
        assert [line for line in errors if "remark: not in the training text (" in line and " Hunde): " in line]
        assert [line for line in errors if "remark: seen once in the training text (Hund): 2 lines: 1, 2" in line]
        errors.clear()
    for option in (("--alternatives", 1), ("--sample",)):
        run(tmp_path / "model", *option, "--extra-length", 1, text=b"Hund\nZwei\n")
        assert [line for line in errors if "remark: not in the training text (Zwei): line 2" in line], option
        errors.clear()


def test_alternatives_and_samples_are_printed(folder, translator, run):
    output = run(folder, "--alternatives", 2, "--extra-length", 4, text=b"Hund\nMann\n")
    assert [line.split("\t")[0] for line in output.split("\n")[:-1]] == ["1", "1", "2", "2"]
    output = run(folder, "--sample", "--seed", 2, "--extra-length", 9, text=b"Hund\n")
    assert output == translator.sample(["Hund"], seed=2, extra_length=9)[0][0].text + "\n"


@pytest.mark.parametrize(
    ("options", "text", "message"),
    [
        ("--beam-size 0", b"a\n", "beam_size=0 must be a whole number, at least 1, at most 64"),
        ("--alternatives 5", b"a\n", "--beam-size 5 or more"),
        ("--alternatives -1", b"a\n", "--alternatives -1: must be 1 or more"),
        ("", b"a\n\xff\n", "standard input:2:1: not UTF-8"),
        ("--input missing.de", b"", "missing.de: No such file"),
        pytest.param("--output /dev/full", b"a\n", "The disk of /dev/full is full", marks=needs_full_device),
    ],
)
def test_a_mistake_ends_in_one_line_and_leaves_no_file(folder, tmp_path, run, options, text, message):
    assert message in error_of(run, folder, "--output", tmp_path / "out", *options.split(), text=text)
    assert list(tmp_path.iterdir()) == []


def test_a_sentence_in_place_of_a_folder_is_an_error(folder, run):
    message = "error: Heute wollen is not a folder. MODEL is one; text comes from standard input or --input FILE."
    assert error_of(run, folder, "Heute wollen") == message


@pytest.mark.full
def test_in_a_terminal_each_typed_line_is_translated(folder, translator):
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "transformer", str(folder), "--extra-length", "0", "--beam-size", "1"]
    process = subprocess.Popen(command, stdin=child, stdout=child, stderr=child, cwd=ROOT)
    os.close(child)
    printed = b""
    while b"de> " not in printed:
        printed += os.read(parent, 1000)
    os.write(parent, b"Ein Hund\n")
    while printed.count(b"de> ") < 2:
        printed += os.read(parent, 1000)
    os.write(parent, b"\x04")  # Ctrl-D
    assert process.wait() == 0
    os.close(parent)
    (translation,) = translator.translate(["Ein Hund"], beam_size=1, extra_length=0)
    assert translation in printed.decode()
