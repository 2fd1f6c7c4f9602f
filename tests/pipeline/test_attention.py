"""The stage attention: which sentences it chooses, what it writes, and the errors of its command line."""

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
from support.tiny import ROOT, TEXT, model_folder

from pipeline.attention import main
from pipeline.stage import run
from transformer.inference.translator import Translator
from transformer.reporting import attention
from transformer.reporting.attention import Text

SVG = "{http://www.w3.org/2000/svg}"
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
        "the longest that is translated exactly right",
        "the worst by chrF",
    ]
    assert found["sentences"][0]["chrf"] == 100.0


def test_of_equal_sentences_the_lower_number_is_chosen_and_one_sentence_is_shown_once():
    lines = ["same", "same", "other"]
    assert list(attention.choice([100.0, 100.0, 100.0], lines, lines)) == [2, 0]
    assert list(attention.choice([5.0, 5.0, 5.0], lines, ["", "", ""])) == [0]
    assert list(attention.choice([3.0, 9.0, 3.0], lines, ["", "sane", ""])) == [1, 0]
    assert "none is exactly right" in attention.choice([3.0, 9.0], lines[:2], ["", "sane"])[1]


def test_an_empty_line_that_is_translated_right_is_not_the_worst():
    references, hypotheses = ["a long one", "", "other"], ["a long one", "", "others"]
    assert list(attention.choice([100.0, 0.0, 60.0], references, hypotheses)) == [0, 2]


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
        assert one["source"]["subwords"] == source
        assert [subword.removeprefix("<unk>: ") for subword in target["subwords"]] == subwords
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


def cells(drawn: str) -> dict[tuple[float, float], list[list[str]]]:
    """The maps of a picture by their places (y, x), in order: the colour of each cell."""
    found = {}
    for group in ElementTree.fromstring(drawn).iter(f"{SVG}g"):
        ground, *paths = group
        columns, rows = map(int, re.findall(r"\d+", ground.attrib["d"])[2:4])
        colours = [[ground.attrib["fill"]] * columns for _ in range(rows)]
        for path in paths:
            for column, row in re.findall(r"M(\d+) (\d+)h1v1h-1z", path.attrib["d"]):
                colours[int(row)][int(column)] = path.attrib["fill"]
        x, y = re.findall(r"[\d.]+", group.attrib["transform"])[:2]
        found[float(y), float(x)] = colours
    return dict(sorted(found.items()))


def shades(weights: np.ndarray) -> list[list[list[str]]]:
    """The colours that the cells of some maps must have."""
    maps = attention.as_bytes(weights).reshape(-1, *weights.shape[-2:])
    return [
        [[attention.colour((byte // 8 + 0.5) / 32) if byte >= 8 else "#440154" for byte in row] for row in one]
        for one in maps.tolist()
    ]


@pytest.mark.parametrize("name", ["translation", "reference"])
def test_each_cell_of_the_picture_has_the_colour_of_its_weight(name):
    target = sentence(1, "", SOURCE, TRANSLATION, REFERENCE).targets[name]
    found = cells(attention.picture(sentence(1, "", SOURCE, TRANSLATION, REFERENCE), name))
    top, left = next(iter(found))
    right, down = 5 * 11 + 14, len(target.text.subwords) * 11 + 14  # from one map to the next
    assert list(found) == [(top + layer * down, left + head * right) for layer in range(2) for head in range(3)]
    assert list(found.values()) == shades(target.cross)


def test_the_stage_draws_the_translation_of_the_first_sentence(folder, monkeypatch):
    attend(monkeypatch, "--sentences", "4")
    maps, *_ = Translator.load("data/model").attention(SOURCES[3], HYPOTHESES[3])
    drawn = Path("reports/attention.svg").read_text(encoding="utf-8")
    assert list(cells(drawn).values()) == shades(maps.cross.numpy())


def test_a_picture_of_a_long_sentence_says_what_is_cut_and_claims_no_sum():
    text = Text([f"▁w{number}" for number in range(60)], list(range(60)))
    drawn = attention.picture(sentence(1, "", text, SOURCE, REFERENCE), "translation")
    assert "Cut: first 48 of 60 columns." in drawn
    assert "sums to 1" not in drawn
    assert len(next(iter(cells(drawn).values()))[0]) == 48
    assert "sums to 1" in attention.picture(sentence(1, "", SOURCE, SOURCE, REFERENCE), "translation")


def test_a_long_sentence_is_cut_before_its_weights_are_sorted(monkeypatch):
    rounded: list[tuple] = []
    as_bytes = attention.as_bytes
    monkeypatch.setattr(attention, "as_bytes", lambda weights: rounded.append(weights.shape) or as_bytes(weights))
    assert attention.shown_bytes(np.full((2, 3, 60, 60), 1 / 60), 35).shape == (2, 3, 35, 35)
    assert rounded == [(2, 3, 35, 60)]


@pytest.mark.parametrize("character", ["\x08", "\x1b", "\ufffe", "\uffff"])
def test_a_character_that_xml_forbids_is_replaced_in_the_picture(folder, monkeypatch, character):
    lines = [f"Ein{character}Hund &", *SOURCES[1:]]
    Path("data/raw/test.src").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    found = attend(monkeypatch)
    assert character in "".join(found["sentences"][0]["source"]["subwords"])
    labels = [text.text for text in ElementTree.parse("reports/attention.svg").getroot().iter(f"{SVG}text")]
    assert "\ufffd" in "".join(filter(None, labels))
    assert Path("reports/attention.png").read_bytes().startswith(b"\x89PNG")


def test_if_the_picture_cannot_be_drawn_nothing_is_written(folder, monkeypatch):
    monkeypatch.setattr("pipeline.attention.image", lambda drawn: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        attend(monkeypatch)
    assert not Path("data/attention.json").exists()
    assert not Path("reports").exists()


def test_an_unknown_subword_of_a_translation_is_one_row_as_in_the_search(folder, monkeypatch):
    lines = [*HYPOTHESES[:1], "Ein <unk>d Ein<unk>", *HYPOTHESES[2:]]
    Path("data/hypotheses/test.hyp").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (one,) = attend(monkeypatch, "--sentences", "2")["sentences"]
    translation, reference = one["targets"]
    # The second one is part of a word: it is text, not what the model wrote.
    assert translation["subwords"][:4] == ["▁Ein", "▁<unk>", "d", "▁Ein"]
    assert translation["words"][:4] == [0, 1, 2, 3]
    assert translation["subwords"].count("▁<unk>") == 1
    assert reference["subwords"] == ["▁", "<unk>: T", "<unk>: w", "<unk>: o", "▁", "m", "e", "n", "</s>"]
    assert not any(subword.startswith("<unk>: ") for subword in one["source"]["subwords"])


def test_the_picture_has_a_map_for_each_layer_and_head_with_escaped_subwords():
    drawn = attention.picture(sentence(1, "", SOURCE, TRANSLATION, REFERENCE), "reference")
    assert drawn.count("crispEdges") == 6
    for text in (">layer 2<", ">head 3<", ">▁Hund<", ">▁bark<", ">&lt;/s&gt;<"):
        assert text in drawn
    assert attention.image(drawn).startswith(b"\x89PNG")
    assert [attention.colour(share) for share in (0, 0.5, 1, 1.01)] == ["#440154", "#21918c", "#fde725", "#fde725"]
