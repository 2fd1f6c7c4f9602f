"""CTranslate2 gives the translations that torch gives, and an error where it cannot."""

from __future__ import annotations

import re
import shutil
from itertools import permutations
from pathlib import Path
from statistics import mean

import pytest
from support.tiny import TEXT, model_folder

from pipeline.compare_engines import difference
from transformer.files import sha256
from transformer.inference.ctranslate2_export import POSITIONS, export
from transformer.inference.translator import Translation, Translator

LINES = [*TEXT, "Hund", "", "Ein Mann spielt Schach im Gras und zwei Hunde rennen ."]
MANY = [" ".join(order) for order in permutations(["Hund", "Mann", "zwei", "Gras", "spielt"], 4)]
SHAPES = {
    "pre": {},
    "post": {"norm": "post"},
    "learned positions": {"positions": "learned"},
    "three matrices": {"tie_embeddings": False},
    "one layer": {"layers": 1, "heads": 4},
    "ends are rare": {"pull": 0.0, "positions": "learned"},
    "narrow keys": {"key_size": 3},
    "wide keys": {"key_size": 20, "norm": "post"},
    "deep encoder": {"encoder_layers": 3, "decoder_layers": 1, "key_size": 1},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_exported_model_gives_the_same_translations_and_alternatives(shape, tmp_path):
    folder = model_folder(tmp_path / "model", spread=0.6, **SHAPES[shape])
    export(folder, tmp_path / "ct2", "float32")
    torch, ct2 = Translator.load(folder), Translator.load(tmp_path / "ct2")
    for beam_size in (1, 4):
        for extra_length in (0, 3, 30):  # the limit cuts all, some and few translations
            wanted = torch.alternatives(LINES, beam_size=beam_size, extra_length=extra_length)
            found = ct2.alternatives(LINES, beam_size=beam_size, extra_length=extra_length)
            assert texts(found) == texts(wanted)
            assert ct2.translate(LINES, beam_size=beam_size, extra_length=extra_length) == [
                one[0] for one in texts(found)
            ]


def texts(found: list[list[Translation]]) -> list[list[str]]:
    """The text of each alternative of each line."""
    return [[each.text for each in one] for one in found]


def test_the_best_of_more_than_beam_size_finished_hypotheses_is_not_left_out(tmp_path):
    """In the last step several may finish; CTranslate2 returns beam_size of them, chosen by a score of its own."""
    folder = model_folder(tmp_path / "model", seed=1, spread=0.45, pull=0.7)
    export(folder, tmp_path / "ct2", "float32")
    torch, ct2 = Translator.load(folder), Translator.load(tmp_path / "ct2")
    for beam_size in (4, 8):
        settings = {"beam_size": beam_size, "length_penalty": 0.0, "extra_length": 10}
        wanted = torch.alternatives(MANY, **settings)
        for count, found in (
            (1, ct2.alternatives(MANY, best_only=True, **settings)),
            (beam_size, ct2.alternatives(MANY, **settings)),
        ):
            for one, other in zip(found, wanted, strict=True):  # scores: texts of near-ties may be in another order
                assert [each.score for each in one[:count]] == pytest.approx(
                    [each.score for each in other[:count]], 1e-3
                )


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder with a model and its two exports."""
    parent = tmp_path_factory.mktemp("engines")
    folder = model_folder(parent / "model", spread=0.6)
    for precision in ("float32", "int8"):
        export(folder, parent / precision, precision)
    return parent


def test_int8_is_smaller_and_translates(folders):
    sizes = [(folders / name / "model.bin").stat().st_size for name in ("float32", "int8")]
    assert sizes[1] < sizes[0]
    assert len(Translator.load(folders / "int8").translate(LINES, extra_length=5)) == len(LINES)


def int8_error(folder: Path, **sizes) -> float:
    """How much int8 changes the score of the best translation, on average over LINES, for a model of random weights."""
    model = model_folder(folder / "model", spread=0.6, **sizes)
    scores = []
    for precision in ("float32", "int8"):
        export(model, folder / precision, precision)
        found = Translator.load(folder / precision).alternatives(LINES, extra_length=1)
        scores.append([one[0].score for one in found])
    return mean(abs(exact - rounded) for exact, rounded in zip(*scores, strict=True))


@pytest.mark.parametrize("key_size", [3, 20])
def test_int8_changes_scores_no_more_with_keys_of_their_own_width_than_without(key_size, tmp_path):
    """Int8 changes these scores by 1.3 on a processor with AVX2 alone, by less than 0.15 with VNNI."""
    usual = int8_error(tmp_path / "usual")
    assert int8_error(tmp_path / "own", key_size=key_size) <= max(0.15, 2 * usual)


def test_two_exports_of_a_model_are_equal_byte_for_byte(folders, tmp_path):
    export(folders / "model", tmp_path / "again", "float32")
    assert sha256(tmp_path / "again") == sha256(folders / "float32")


def test_a_sentence_longer_than_the_position_table_is_an_error_and_not_cut(folders):
    translator = Translator.load(folders / "float32")
    with pytest.raises(ValueError, match=r"sentence 'Hund Hund .* has .* With extra_length=50 .* at most 4,046"):
        translator.translate(["Hund", "Hund " * POSITIONS])


def test_a_truncated_export_is_an_error_with_its_path(folders, tmp_path):
    shutil.copytree(folders / "float32", tmp_path / "model")
    with open(tmp_path / "model/model.bin", "r+b") as file:
        file.truncate(1000)
    with pytest.raises(ValueError, match=f"{tmp_path}/model: CTranslate2 cannot read this model"):
        Translator.load(tmp_path / "model")


def test_a_method_that_ctranslate2_lacks_is_an_error_with_its_name(folders):
    translator = Translator.load(folders / "float32")
    calls = {"sample": lambda: translator.sample(["Hund"]), "score": lambda: translator.score(["Hund"], ["dog"])}
    for name, call in calls.items():
        with pytest.raises(ValueError, match=f"{name} is not offered by CTranslate2"):
            call()
    with pytest.raises(ValueError, match="cannot translate with an ensemble"):
        Translator.load(folders / "float32", folders / "float32")


GOOD = {
    "float32_identical_beam_1": 99.6,
    "float32_identical_beam_4": 99.1,
    "torch_bleu_beam_1": 40.0,
    "torch_bleu_beam_4": 41.0,
    "int8_bleu_beam_1": 39.6,
    "int8_bleu_beam_4": 40.6,
}


@pytest.mark.parametrize(
    ("worse", "wanted"),
    [
        ({"float32_identical_beam_1": 99.4}, "beam 1, 99.40% of the translations of valid .* and 99.5% are required"),
        ({"float32_identical_beam_4": 98.9}, "beam 4, 98.90% of the translations of valid .* and 99.0% are required"),
        ({"int8_bleu_beam_4": 40.4}, "int8 loses 0.60 BLEU"),
    ],
)
def test_a_worse_export_is_reported_with_its_numbers(worse, wanted):
    assert difference(GOOD, 1000) == ""
    assert re.search(wanted, difference(GOOD | worse, 1000))


def test_near_ties_of_an_untrained_model_do_not_count_as_differences():
    worse = {"torch_bleu_beam_1": 4.9, "torch_bleu_beam_4": 4.9, "float32_identical_beam_1": 10.0}
    assert difference(GOOD | worse, 1000) == ""


def test_one_different_sentence_is_always_allowed():
    assert difference(GOOD | {"float32_identical_beam_1": 100 * 11 / 12}, 12) == ""
