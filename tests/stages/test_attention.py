"""The stage attention: which sentences it chooses, what it writes and draws, and the errors of its command line."""

from __future__ import annotations

import base64
import json
import re
import shutil
import sys
import zlib
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.attention import REFERENCE, SOURCE, TRANSLATION, sentence
from support.stages import message_of
from support.tiny import ROOT, TEXT

from pipeline.attention import main
from transformer.files import write_lines
from transformer.inference.translator import Translator
from transformer.reporting import attention

SVG = "{http://www.w3.org/2000/svg}"
SOURCES = [*TEXT, "Ein Hund", "Zwei Hunde"]
REFERENCES = ["A dog runs", "Two men", "A man", "A dog", "Two dogs are here"]
HYPOTHESES = ["A dog runs", "Two cats", "A man", "zzz", "Two dogs are not"]  # right: 1 and 3; the worst: 4


@pytest.fixture
def folder(model: Path, tmp_path: Path, monkeypatch) -> Path:
    """A folder with the inputs of the stage, as the current folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(model, "data/averaged")
    shutil.copy(ROOT / "params.yaml", "params.yaml")
    write_lines(Path("data/raw/test.src"), SOURCES)
    write_lines(Path("data/raw/test.tgt"), REFERENCES)
    write_lines(Path("data/hypotheses/test.hyp"), HYPOTHESES)
    return tmp_path


def attend(monkeypatch, *options: str) -> list[dict]:
    """Run the stage with options. Returns the sentences of data/attention.json."""
    monkeypatch.setattr(sys, "argv", ["attention", *options])
    main()
    return json.loads(Path("data/attention.json").read_text(encoding="utf-8"))["sentences"]


def refused(*options: str) -> str:
    """The message with which the stage ends, having written nothing."""
    message = message_of(main, *options)
    assert not Path("data/attention.json").exists()
    assert not Path("reports").exists()
    return message


def unpacked(text: str, *shape: int) -> np.ndarray:
    """The bytes of some maps."""
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8).reshape(shape)


def test_the_longest_right_sentence_and_the_worst_one_are_shown(folder, monkeypatch):
    sentences = attend(monkeypatch)
    assert [(shown["number"], shown["why"]) for shown in sentences] == [
        (1, "the longest that is translated exactly right"),
        (4, "the worst by chrF"),
    ]
    assert sentences[0]["chrf"] == 100.0


def test_of_equal_sentences_the_lower_number_is_chosen_and_none_twice():
    lines = ["same", "same", "other"]
    assert list(attention.choice([100.0, 100.0, 100.0], lines, lines)) == [2, 0]
    assert list(attention.choice([5.0, 5.0, 5.0], lines, ["", "", ""])) == [0]
    assert list(attention.choice([0.0, 50.0], ["", "sane"], ["", "same"])) == [1]  # a blank line is not right
    assert list(attention.choice([3.0, 9.0, 3.0], lines, ["", "sane", ""])) == [1, 0]
    assert "none is exactly right" in attention.choice([3.0, 9.0], lines[:2], ["", "sane"])[1]
    # an empty line that is translated right is not the worst
    assert list(attention.choice([100.0, 0.0, 60.0], ["a long one", "", "other"], ["a long one", "", "others"])) == [
        0,
        2,
    ]


def test_other_sentences_are_chosen_on_the_command_line_in_that_order(folder, monkeypatch):
    assert [shown["number"] for shown in attend(monkeypatch, "--sentences", "5, 2,5")] == [5, 2]
    assert "over the source: sentence 5, translation" in Path("reports/attention.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("option", ["3,6", "0", "-1", "x", "", "1,,2", "1.0", "²"])
def test_a_number_of_no_line_is_refused_with_the_count_of_lines(folder, option):
    assert "data/raw/test.src, which has 5" in refused(f"--sentences={option}")


def test_the_maps_are_those_of_translation_and_reference(folder, monkeypatch):
    (shown,) = attend(monkeypatch, "--sentences", "2")
    translator = Translator.load("data/averaged")
    for target, line in zip(shown["targets"], (HYPOTHESES[1], REFERENCES[1]), strict=True):
        maps, source, subwords = translator.attention(SOURCES[1], line)
        assert shown["source"]["subwords"] == source
        assert [subword.removeprefix("<unk>: ") for subword in target["subwords"]] == subwords
        for kind, text in {**target, "encoder": shown["encoder"]}.items():
            if kind in ("cross", "decoder", "encoder"):
                weights = getattr(maps, kind).numpy()
                assert np.abs(unpacked(text, *weights.shape) / 255 - weights).max() < 1 / 255
    words: dict[int, str] = {}
    for subword, number in zip(shown["source"]["subwords"], shown["source"]["words"], strict=True):
        words[number] = words.get(number, "") + subword
    assert list(words.values()) == ["▁Zwei", "▁Männer", "▁spielen", "▁Schach", "▁.", "</s>"]


def test_the_same_inputs_give_the_same_files(folder, monkeypatch):
    names = ("data/attention.json", "reports/attention.svg", "reports/attention.png")
    contents = []
    for _ in range(2):
        attend(monkeypatch)
        contents.append([Path(name).read_bytes() for name in names])
    assert contents[0] == contents[1]


@given(st.integers(1, 60), st.integers(0, 1000), st.floats(0.1, 30))
@settings(deadline=None)
def test_bytes_of_a_row_sum_to_255_and_are_near_their_weights(length, seed, sharpness):
    scores = np.random.default_rng(seed).normal(scale=sharpness, size=(3, length)).astype(np.float32)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    rounded = attention.quantise(weights)
    assert (rounded.sum(-1, dtype=int) == 255).all()
    assert np.abs(rounded - 255.0 * weights).max() < 1.001


def test_long_sentences_are_cut_so_that_the_page_stays_small(monkeypatch):
    monkeypatch.setattr(attention, "MOST_BYTES", 5 * 6 * 3 * 3)  # 3 subwords of a side, for 6 maps
    (shown,) = attention.page_data([sentence(1, "", SOURCE, TRANSLATION, REFERENCE)])["sentences"]
    assert shown["source"]["subwords"] == SOURCE.subwords[:3]
    assert [shown["source"]["of"], *(target["of"] for target in shown["targets"])] == [5, 5, 6]
    weights = attention.quantise(sentence(1, "", SOURCE, TRANSLATION, REFERENCE).targets["reference"].cross)
    assert (unpacked(shown["targets"][1]["cross"], 2, 3, 3, 3) == weights[..., :3, :3]).all()


@pytest.mark.parametrize(("layers", "heads", "sentences"), [(6, 8, 2), (6, 16, 2), (2, 4, 2), (6, 16, 40)])
def test_the_weights_of_any_model_are_at_most_1200_kb(layers, heads, sentences):
    most = attention.most_subwords(sentences, layers * heads * 5)
    assert most >= 7
    assert sentences * layers * heads * 5 * most**2 <= 1_200_000


def cells(drawn: str) -> dict[tuple[float, float], list[list[str]]]:
    """The maps of a picture by their places (y, x), in order: the colour of each cell."""
    maps = {}
    for group in ElementTree.fromstring(drawn).iter(f"{SVG}g"):
        ground, *paths = group
        columns, rows = map(int, re.findall(r"\d+", ground.attrib["d"])[2:4])
        colours = [[ground.attrib["fill"]] * columns for _ in range(rows)]
        for path in paths:
            for column, row in re.findall(r"M(\d+) (\d+)h1v1h-1z", path.attrib["d"]):
                colours[int(row)][int(column)] = path.attrib["fill"]
        x, y = re.findall(r"[\d.]+", group.attrib["transform"])[:2]
        maps[float(y), float(x)] = colours
    return dict(sorted(maps.items()))


@pytest.mark.parametrize("name", ["translation", "reference"])
def test_each_cell_of_the_picture_has_the_colour_of_its_weight(name):
    target = sentence(1, "", SOURCE, TRANSLATION, REFERENCE).targets[name]
    drawn = attention.picture(sentence(1, "", SOURCE, TRANSLATION, REFERENCE), name)
    maps = cells(drawn)
    top, left = next(iter(maps))
    right, down = 5 * 11 + 14, len(target.text.subwords) * 11 + 14  # from one map to the next
    assert list(maps) == [(top + layer * down, left + head * right) for layer in range(2) for head in range(3)]
    weights = attention.quantise(target.cross).reshape(-1, *target.cross.shape[-2:])
    assert list(maps.values()) == [
        [[attention.colour((byte // 8 + 0.5) / 32) if byte >= 8 else "#440154" for byte in row] for row in rows]
        for rows in weights.tolist()
    ]
    for text in (">layer 2<", ">head 3<", ">▁Hund<", ">&lt;/s&gt;<"):
        assert text in drawn
    assert "sums to 1" in drawn


@pytest.mark.parametrize("character", ["\x08", "\uffff"])
def test_a_character_that_xml_forbids_is_replaced_in_the_picture(folder, monkeypatch, character):
    write_lines(Path("data/raw/test.src"), [f"Ein{character}Hund &", *SOURCES[1:]])
    assert character in "".join(attend(monkeypatch)[0]["source"]["subwords"])
    labels = [text.text for text in ElementTree.parse("reports/attention.svg").getroot().iter(f"{SVG}text")]
    assert "\ufffd" in "".join(filter(None, labels))
    assert Path("reports/attention.png").read_bytes().startswith(b"\x89PNG")


def test_an_unknown_subword_of_a_translation_is_one_row(folder, monkeypatch):
    write_lines(Path("data/hypotheses/test.hyp"), [*HYPOTHESES[:1], "Ein <unk>d Ein<unk>", *HYPOTHESES[2:]])
    (shown,) = attend(monkeypatch, "--sentences", "2")
    translation, reference = shown["targets"]
    # The second one is part of a word: it is text, not what the model wrote.
    assert translation["subwords"][:4] == ["▁Ein", "▁<unk>", "d", "▁Ein"]
    assert translation["words"][:4] == [0, 1, 2, 3]
    assert translation["subwords"].count("▁<unk>") == 1
    assert reference["subwords"] == ["▁", "<unk>: T", "<unk>: w", "<unk>: o", "▁", "m", "e", "n", "</s>"]
    assert not any(subword.startswith("<unk>: ") for subword in shown["source"]["subwords"])
