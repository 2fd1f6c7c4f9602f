"""The translator, called from a program, on the command line and in a terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiny import ODD, ROOT, TEXT, model_folder

from transformer.__main__ import main
from transformer.decoding.attention_maps import AttentionMaps
from transformer.decoding.hypothesis import Hypothesis
from transformer.inference.translator import Translator
from transformer.text.vocabulary import BOS, EOS, PAD, UNK


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return model_folder(tmp_path_factory.mktemp("translator") / "model")


@pytest.fixture(scope="module")
def translator(folder) -> Translator:
    return Translator.load(str(folder))


def run(*options: object, text: bytes = b"") -> subprocess.CompletedProcess:
    """Run `python -m transformer` with these options. text: standard input."""
    command = [sys.executable, "-m", "transformer", *map(str, options)]
    return subprocess.run(command, input=text, capture_output=True, cwd=ROOT)


def test_each_line_is_translated_and_an_empty_line_stays_empty(translator):
    lines = [TEXT[0], "", " \t ", TEXT[1]]
    found = translator.translate(lines, beam_size=2, extra_length=5)
    assert found[1:3] == ["", ""]
    assert found == [translator.translate([line], beam_size=2, extra_length=5)[0] for line in lines]
    assert translator.translate([]) == []


def test_alternatives_come_best_first_with_their_scores(translator):
    (found,) = translator.alternatives([TEXT[0]], beam_size=4, extra_length=20)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    assert found[0].text == translator.translate([TEXT[0]], beam_size=4, extra_length=20)[0]
    assert len({one.subwords for one in found}) == len(found)


@given(line=st.text(max_size=30))
@settings(deadline=None, max_examples=60)
def test_every_line_has_a_translation_of_one_line(translator, line):
    (found,) = translator.translate([line], beam_size=2, extra_length=3)
    assert "\n" not in found


@pytest.mark.parametrize("name", ODD)
def test_unusual_lines_are_translated(translator, name):
    assert isinstance(translator.translate([ODD[name]], beam_size=1, extra_length=0)[0], str)


def test_several_folders_are_an_ensemble(folder, translator, tmp_path):
    both = Translator.load(folder, model_folder(tmp_path / "other", seed=8))
    assert both.translate(TEXT, extra_length=4) != translator.translate(TEXT, extra_length=4)
    same = Translator.load(folder, folder).translate(TEXT, extra_length=4)
    assert same == translator.translate(TEXT, extra_length=4)
    with pytest.raises(ValueError, match="another vocabulary"):
        Translator.load(folder, model_folder(tmp_path / "third", merges=5))


@pytest.mark.parametrize(("options", "wanted"), [({"beam_size": 0}, "beam_size=0"), ({"extra_length": -1}, "=-1")])
def test_a_setting_out_of_range_is_an_error(translator, options, wanted):
    with pytest.raises(ValueError, match=wanted):
        translator.translate(["a"], **options)


def test_score_gives_a_translation_the_log_probability_of_the_search(translator):
    (found,) = translator.alternatives([TEXT[0]], beam_size=8, extra_length=40)
    # score cuts the text into subwords again, which gives the subwords of the search for some translations only
    same = [one for one in found if translator.subwords([one.text], translator.target) == [list(one.subwords)]]
    scores = translator.score([TEXT[0]] * len(same), [one.text for one in same])
    for one, steps in zip(same, scores, strict=True):
        assert sum(steps) == pytest.approx(one.log_probability, abs=1e-4)
    with pytest.raises(ValueError, match="2 sources and 1 targets"):
        translator.score(["a", "b"], ["c"])


def test_attention_returns_maps_with_the_subwords_of_both_sides(translator):
    maps, source, target = found = translator.attention(TEXT[0], "Ein Hund")
    assert maps.cross.shape == (2, 2, len(target), len(source))
    assert source == [*translator.subwords([TEXT[0]])[0], "</s>"]
    assert target == [*translator.subwords(["Ein Hund"], translator.target)[0], "</s>"]
    assert (found.maps, found.source, found.target) == (maps, source, target)


class ConstantEngine:
    """An engine that translates each source to the same ids, with given attention.

    attended: for each id, the place of the source word with attention weight 1.
    """

    def __init__(self, ids: list[int], attended: list[int]):
        self.ids, self.attended = ids, attended

    def search(self, sources, **options):
        return [[Hypothesis(tuple(self.ids), 0.0, 0.0)] for _ in sources]

    def attention(self, source, target):
        cross = torch.zeros(2, 1, len(target) + 1, len(source) + 1)
        for row, place in enumerate(self.attended):
            cross[-1, 0, row, place] = 1
        return AttentionMaps(cross, cross, cross)


def test_unk_is_replaced_by_the_source_word_that_it_attends_to(tmp_path):
    translator = Translator.load(model_folder(tmp_path / "model", merges=0))
    ein, rennt = translator.vocabulary.ids(["▁Ein", "▁rennt"])
    translator.engine = ConstantEngine([ein, UNK, rennt, UNK], attended=[0, 2, 1, 3])
    line = "Der Hund Bello jagt"
    assert translator.translate([line]) == ["Ein <unk> rennt <unk>"]
    assert translator.translate([line], replace_unk=True) == ["Ein Bello rennt jagt"]


def test_replace_unk_needs_a_word_level_model(translator):
    with pytest.raises(ValueError, match="bpe_merges: 0"):
        translator.translate(["a"], replace_unk=True)


def test_the_command_line_translates_a_file_as_the_method_translate_does(folder, translator, tmp_path):
    source, target = tmp_path / "a.de", tmp_path / "a.en"
    lines = [*TEXT, "", "Hund\r", "Mann\u2028Hund"]
    source.write_bytes("\n".join(lines).encode())  # no line feed at the end
    options = ("--beam-size", 2, "--extra-length", 4)
    done = run(folder, "--input", source, "--output", target, *options)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert target.read_text().split("\n")[:-1] == translator.translate(lines, beam_size=2, extra_length=4)
    assert run(folder, *options, text=source.read_bytes()).stdout == target.read_bytes()


def test_the_command_line_prints_alternatives_and_samples(folder):
    found = run(folder, "--alternatives", 2, "--extra-length", 4, text=b"Hund\nMann\n").stdout.decode()
    assert [line.split("\t")[0] for line in found.split("\n")[:-1]] == ["1", "1", "2", "2"]
    found = run(folder, "--sample", "--seed", 1, "--extra-length", 9, text=b"Hund\n").stdout.decode()
    one, two = (Translator.load(folder).sample(["Hund"], seed=seed, extra_length=9)[0][0].text for seed in (1, 2))
    assert found == one + "\n"
    assert one != two


@pytest.mark.parametrize(
    ("options", "text", "wanted"),
    [
        (["--beam-size", "0"], b"a\n", "beam_size=0 must be from 1 to 1000"),
        (["--beam-size", "100000"], b"a\n", "beam_size=100000 must be from 1 to 1000"),
        (["--length-penalty", "1e6"], b"a\n", "length_penalty=1000000.0 must be from 0 to 20"),
        (["--length-penalty", "nan"], b"a\n", "length_penalty=nan must be from 0 to 20"),
        (["--sample", "--temperature", "inf"], b"a\n", "temperature=inf must be from"),
        (["--alternatives", "5"], b"a\n", "--beam-size 5 or more"),
        (["--alternatives", "-1"], b"a\n", "--alternatives -1: must be 1 or more"),
        (["--sample", "--temperature", "0"], b"a\n", "temperature=0.0 must be from"),
        ([], b"a\n\xff\n", "standard input:2: not UTF-8"),
        (["--input", "missing.de"], b"", "missing.de: No such file"),
    ],
)
def test_a_mistake_on_the_command_line_ends_in_one_line_and_leaves_no_file(
    folder, tmp_path, monkeypatch, options, text, wanted
):
    message = error_of(monkeypatch, folder, "--output", tmp_path / "out", *options, text=text)
    assert wanted in message
    assert list(tmp_path.iterdir()) == []


def error_of(monkeypatch, *options: object, text: bytes = b"a\n") -> str:
    """The error message, one line, of `python -m transformer` with these options. text: standard input."""
    monkeypatch.setattr(sys, "argv", ["transformer", *map(str, options)])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    with pytest.raises(SystemExit) as ended:
        main()
    assert isinstance(ended.value.code, str)
    assert ended.value.code.startswith("error: ")
    assert "\n" not in ended.value.code
    return ended.value.code


def test_a_folder_without_a_model_is_an_error_with_its_path(tmp_path, monkeypatch):
    assert f"{tmp_path}/model.json is missing" in error_of(monkeypatch, tmp_path)
    (tmp_path / "model.json").write_text(json.dumps({"format": 2}))
    assert "format 2 is not 1" in error_of(monkeypatch, tmp_path)


@pytest.mark.parametrize("name", ["weights.safetensors", "vocab.txt", "model.json"])
def test_a_model_folder_with_a_truncated_file_is_an_error_with_its_path(folder, tmp_path, monkeypatch, name):
    shutil.copytree(folder, tmp_path / "model")
    contents = (tmp_path / "model" / name).read_bytes()
    for size in (0, 5, len(contents) // 2):
        (tmp_path / "model" / name).write_bytes(contents[:size])
        assert str(tmp_path / "model") in error_of(monkeypatch, tmp_path / "model")


@pytest.mark.parametrize(("name", "value"), [("source", "fr"), ("target", "fr"), ("lowercase", True)])
def test_models_of_other_languages_or_case_are_no_ensemble(folder, tmp_path, monkeypatch, name, value):
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    contents = json.loads((other / "model.json").read_text())
    (other / "model.json").write_text(json.dumps(contents | {name: value}))
    message = error_of(monkeypatch, folder, other)
    assert f"{other} cannot be in an ensemble with {folder}: {name} is {value}" in message


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
    (wanted,) = translator.translate(["Ein Hund"], beam_size=1, extra_length=0)
    assert wanted in printed.decode()


def test_a_sample_never_contains_pad_bos_or_eos(translator):
    for found in translator.sample(list(TEXT) * 3, samples=3, temperature=3.0, extra_length=9):
        for one in found:
            assert not {PAD, BOS, EOS} & set(translator.vocabulary.ids(one.subwords))


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        ("model.json", '{"format": 1}', r"model\.json: damaged \(no lowercase, lowercase_source, sizes, source, target\)"),
        ("bpe.codes", "#version: 0.2\nab", r"bpe\.codes is damaged: it has a line that is no merge"),
    ],
)
def test_a_damaged_file_of_a_model_folder_is_named(tmp_path, name, content, wanted, capsys):
    folder = model_folder(tmp_path / "model")
    (folder / name).write_text(content)
    with pytest.raises(ValueError, match=wanted):
        Translator.load(folder)
    assert capsys.readouterr().err == ""
