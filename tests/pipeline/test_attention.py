"""The stage attention: which sentences it chooses, what it writes, and the errors of its command line."""

from __future__ import annotations

import base64
import json
import shutil
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.attention import REFERENCE, SOURCE, TRANSLATION, sentence
from support.tiny import ROOT, TEXT, model_folder

from pipeline.attention import main
from pipeline.shared.stage import run
from transformer.inference.translator import Translator
from transformer.reporting import attention

SOURCES = [*TEXT, "Ein Hund", "Zwei Hunde"]
REFERENCES = ["A dog runs", "Two men", "A man", "A dog", "Two dogs are here"]
HYPOTHESES = ["A dog runs", "Two cats", "A man", "zzz", "Two dogs are not"]  # right: 1 and 3; the worst: 4


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with the inputs of the stage."""
    folder = tmp_path_factory.mktemp("attention")
    model_folder(folder / "data/model")
    shutil.copy(ROOT / "params.yaml", folder / "params.yaml")
    for name, lines in {"raw/test.src": SOURCES, "raw/test.tgt": REFERENCES, "hypotheses/test.hyp": HYPOTHESES}.items():
        (folder / "data" / name).parent.mkdir(exist_ok=True)
        (folder / "data" / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch) -> Path:
    """A copy of these inputs, as the current folder."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def attend(monkeypatch, *options: str) -> dict:
    """Run the stage with options. Returns data/attention.json."""
    monkeypatch.setattr(sys, "argv", ["attention", *options])
    main()
    return json.loads(Path("data/attention.json").read_text(encoding="utf-8"))


def refused(monkeypatch, *options: str) -> str:
    """The message with which the stage ends."""
    monkeypatch.setattr(sys, "argv", ["attention", *options])
    with pytest.raises(SystemExit) as ended:
        run(main)
    return str(ended.value.code)


def unpacked(text: str, *shape: int) -> np.ndarray:
    """The bytes of some maps."""
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8).reshape(shape)


def test_by_default_the_longest_right_sentence_and_the_worst_one_are_shown(folder, monkeypatch):
    found = attend(monkeypatch)
    assert [one["number"] for one in found["sentences"]] == [1, 4]
    assert [one["why"] for one in found["sentences"]] == [
        "the longest that is translated exactly right", "the worst by chrF"]  # fmt: skip
    assert found["sentences"][0]["chrf"] == 100.0


def test_of_equal_sentences_the_lower_number_is_chosen_and_one_sentence_is_shown_once():
    lines = ["same", "same", "other"]
    assert list(attention.choice([100.0, 100.0, 100.0], lines, lines)) == [2, 0]
    assert list(attention.choice([5.0, 5.0, 5.0], lines, ["", "", ""])) == [0]
    assert list(attention.choice([3.0, 9.0, 3.0], lines, ["", "sane", ""])) == [1, 0]
    assert "none is exactly right" in attention.choice([3.0, 9.0], lines[:2], ["", "sane"])[1]


def test_other_sentences_are_chosen_on_the_command_line_in_that_order(folder, monkeypatch):
    found = attend(monkeypatch, "--sentences", "5, 2,5")
    assert [one["number"] for one in found["sentences"]] == [5, 2]
    assert "over the source: sentence 5, translation" in Path("reports/attention.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("option", ["3,6", "0", "-1", "x", "", "1,,2", "1.0", "²"])
def test_what_is_no_number_of_a_line_is_refused_with_the_count_of_lines_and_writes_nothing(folder, monkeypatch, option):
    message = refused(monkeypatch, f"--sentences={option}")
    assert "data/raw/test.src, which has 5" in message
    assert "\n" not in message
    assert not Path("data/attention.json").exists()
    assert not Path("reports").exists()


@pytest.mark.parametrize("name", ["data/model", "data/raw/test.src", "data/hypotheses/test.hyp"])
def test_a_missing_input_is_named_with_the_remedy(folder, monkeypatch, name):
    Path(name).rename(folder / "elsewhere")
    message = refused(monkeypatch)
    assert name in message
    assert "dvc repro" in message


def test_different_numbers_of_lines_are_refused(folder, monkeypatch):
    Path("data/hypotheses/test.hyp").write_text("one\n")
    assert "has 1 lines, but data/raw/test.tgt has 5. Nothing was written." in refused(monkeypatch)


def test_the_maps_are_those_of_translation_and_reference_with_their_subwords(folder, monkeypatch):
    (one,) = attend(monkeypatch, "--sentences", "2")["sentences"]
    translator = Translator.load("data/model")
    for target, line in zip(one["targets"], (HYPOTHESES[1], REFERENCES[1]), strict=True):
        maps, source, subwords = translator.attention(SOURCES[1], line)
        assert (one["source"]["subwords"], target["subwords"]) == (source, subwords)
        packed = {"cross": target["cross"], "decoder": target["decoder"], "encoder": one["encoder"]}
        for kind, text in packed.items():
            wanted = getattr(maps, kind).numpy()
            assert np.abs(unpacked(text, *wanted.shape) / 255 - wanted).max() < 1 / 255


def test_each_subword_has_the_number_of_its_word(folder, monkeypatch):
    (one,) = attend(monkeypatch, "--sentences", "2")["sentences"]
    words: dict[int, str] = {}
    for subword, number in zip(one["source"]["subwords"], one["source"]["words"], strict=True):
        words[number] = words.get(number, "") + subword
    assert list(words.values()) == ["▁Zwei", "▁Männer", "▁spielen", "▁Schach", "▁.", "</s>"]


def test_the_same_inputs_give_the_same_files(folder, monkeypatch):
    names = ("data/attention.json", "reports/attention.svg", "reports/attention.png")
    attend(monkeypatch)
    first = [Path(name).read_bytes() for name in names]
    attend(monkeypatch)
    assert first == [Path(name).read_bytes() for name in names]
    assert first[2].startswith(b"\x89PNG")


@given(st.integers(1, 60), st.integers(0, 1000), st.floats(0.1, 30))
@settings(deadline=None)
def test_bytes_of_a_row_sum_to_255_and_are_less_than_1_from_their_weights(length, seed, sharpness):
    scores = np.random.default_rng(seed).normal(scale=sharpness, size=(3, length)).astype(np.float32)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    found = attention.as_bytes(weights)
    assert (found.sum(-1, dtype=int) == 255).all()
    assert np.abs(found - 255.0 * weights).max() < 1.001


def test_long_sentences_are_cut_so_that_the_page_stays_small(monkeypatch):
    monkeypatch.setattr(attention, "MOST_BYTES", 5 * 6 * 3 * 3)  # 3 subwords of a side, for 6 maps
    (one,) = attention.contents([sentence(1, "", SOURCE, TRANSLATION, REFERENCE)])["sentences"]
    assert one["source"]["subwords"] == SOURCE.subwords[:3]
    assert [one["source"]["of"], *(target["of"] for target in one["targets"])] == [5, 5, 6]
    whole = attention.as_bytes(sentence(1, "", SOURCE, TRANSLATION, REFERENCE).targets["reference"].cross)
    assert (unpacked(one["targets"][1]["cross"], 2, 3, 3, 3) == whole[..., :3, :3]).all()


@pytest.mark.parametrize(("layers", "heads", "sentences"), [(6, 8, 2), (6, 16, 2), (2, 4, 2), (6, 16, 40)])
def test_the_weights_of_any_model_and_number_of_sentences_are_at_most_1200_kb(layers, heads, sentences):
    most = attention.most_subwords(sentences, layers * heads * 5)
    assert most >= 7
    assert sentences * layers * heads * 5 * most**2 <= 1_200_000


def test_the_picture_has_a_map_for_each_layer_and_head_with_escaped_subwords():
    drawn = attention.picture(sentence(1, "", SOURCE, TRANSLATION, REFERENCE), "reference")
    assert drawn.count("crispEdges") == 6
    for text in (">layer 2<", ">head 3<", ">▁Hund<", ">▁bark<", ">&lt;/s&gt;<"):
        assert text in drawn
    assert attention.image(drawn).startswith(b"\x89PNG")
    assert [attention.colour(share) for share in (0, 0.5, 1, 1.01)] == ["#440154", "#21918c", "#fde725", "#fde725"]
