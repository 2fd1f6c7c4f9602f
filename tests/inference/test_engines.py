"""CTranslate2 gives the translations that torch gives, and an error where it cannot."""

from __future__ import annotations

import shutil
from itertools import permutations
from pathlib import Path

import pytest
from support.tiny import TEXT, model_folder

from transformer.files import sha256
from transformer.inference.ctranslate2_export import add_export, export
from transformer.inference.translator import Translator
from transformer.model_folder import POSITIONS

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


def both_engines(folder: Path) -> tuple[Translator, Translator]:
    """The translators of a model folder by torch and by CTranslate2."""
    add_export(folder, folder, "float32")
    return Translator.load(folder, engine="torch"), Translator.load(folder, engine="ctranslate2")


FAST = ("pre", "ends are rare", "deep encoder")


@pytest.mark.parametrize(
    "shape", [pytest.param(shape, marks=[] if shape in FAST else pytest.mark.full) for shape in SHAPES]
)
def test_the_exported_model_gives_the_same_translations(shape, tmp_path):
    torch, ct2 = both_engines(model_folder(tmp_path / "model", spread=0.6, **SHAPES[shape]))
    for beam_size in (1, 4):
        for extra_length in (0, 3, 30):  # the limit cuts all, some and few translations
            settings = {"beam_size": beam_size, "extra_length": extra_length}
            expected, texts = (
                [[translation.text for translation in best] for best in translator.alternatives(LINES, **settings)]
                for translator in (torch, ct2)
            )
            assert texts == expected
            assert ct2.translate(LINES, **settings) == [best[0] for best in texts]


def test_the_best_of_more_hypotheses_than_beams_is_returned(tmp_path):
    """In the last step several may finish; CTranslate2 returns beam_size of them, chosen by a score of its own."""
    torch, ct2 = both_engines(model_folder(tmp_path / "model", seed=1, spread=0.45, pull=0.7))
    for beam_size in (4, 8):
        settings = {"beam_size": beam_size, "length_penalty": 0.0, "extra_length": 10}
        expected = torch.alternatives(MANY, **settings)
        for count, best_only in ((1, True), (beam_size, False)):
            results = ct2.alternatives(MANY, best_only=best_only, **settings)
            for pair in zip(results, expected, strict=True):  # scores: texts of near-ties may be in another order
                scores, exact = ([translation.score for translation in best[:count]] for best in pair)
                assert scores == pytest.approx(exact, 1e-3)


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


def test_two_exports_of_a_model_are_equal_byte_for_byte(folders, tmp_path):
    export(folders / "model", tmp_path / "again", "float32")
    assert sha256(tmp_path / "again") == sha256(folders / "float32")


def test_a_sentence_longer_than_the_position_table_is_an_error(folders):
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
    with pytest.raises(ValueError, match=f"{folders}/float32 has a model for CTranslate2 alone"):
        Translator.load(folders / "float32", folders / "float32")
