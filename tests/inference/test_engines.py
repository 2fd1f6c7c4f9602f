"""CTranslate2 gives the translations that torch gives, and an error where it cannot."""

from __future__ import annotations

import shutil
from itertools import permutations
from pathlib import Path

import pytest
import torch as pytorch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiny import TEXT, model_folder

from transformer.cores import cores
from transformer.decoding.config import SearchConfig
from transformer.files import sha256
from transformer.inference.both_engines import BothEngines
from transformer.inference.ctranslate2_engine import CTranslate2Engine
from transformer.inference.ctranslate2_export import add_export, export
from transformer.inference.torch_engine import TorchEngine, threads_for
from transformer.inference.translator import Translator
from transformer.model_folder import EXPORT_FILES, POSITIONS

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


def test_of_more_hypotheses_than_beams_both_engines_keep_the_likeliest(tmp_path):
    torch, ct2 = both_engines(model_folder(tmp_path / "model", seed=1, spread=0.45, pull=0.7))
    for beam_size, length_penalty in ((4, 0.0), (8, 0.0), (8, 2.0)):
        settings = {"beam_size": beam_size, "length_penalty": length_penalty, "extra_length": 10}
        for pair in zip(*(each.alternatives(MANY, **settings) for each in (ct2, torch)), strict=True):
            scores, exact = ([translation.score for translation in hypotheses] for hypotheses in pair)
            assert scores == pytest.approx(exact, 1e-3)


TOLERANCE = 1e-3  # relative, of a score: float32 products are summed in another order
SEARCH = {
    "beam_size": st.integers(1, 6),
    "extra_length": st.sampled_from([0, 1, 3, 30]),
    "length_penalty": st.sampled_from([0.0, 0.6, 2.0]),
}


@pytest.fixture(scope="module")
def engines(tmp_path_factory) -> tuple[Translator, Translator]:
    """The translators of a random model by torch and by CTranslate2."""
    return both_engines(model_folder(tmp_path_factory.mktemp("both") / "model", spread=0.6))


@given(
    line=st.lists(st.sampled_from(sorted({word for line in TEXT for word in line.split()})), max_size=12).map(" ".join),
    search=st.fixed_dictionaries(SEARCH),
)
@settings(deadline=None, max_examples=25)
def test_the_engines_find_the_same_translations(engines, line, search):
    """In any line of known words and any search; near-ties may be in another order."""
    found, expected = (each.alternatives([line], **search)[0] for each in engines[::-1])
    assert [each.score for each in found] == pytest.approx([each.score for each in expected], TOLERANCE)
    near = [each.text for each in expected if each.score == pytest.approx(expected[0].score, TOLERANCE)]
    assert found[0].text in near


def test_torch_computes_what_ctranslate2_does_not(engines, tmp_path, monkeypatch):
    folder = model_folder(tmp_path / "model", spread=0.6)
    add_export(folder, folder, "float32")
    both, torch = Translator.load(folder), engines[0]
    assert isinstance(both.engine, BothEngines)
    assert both.translate(LINES, beam_size=2) == engines[1].translate(LINES, beam_size=2)
    assert both.alternatives(LINES[:1]) == engines[1].alternatives(LINES[:1])
    assert "torch" not in vars(both.engine)  # not loaded
    assert both.sample(["Hund"]) == torch.sample(["Hund"])
    assert both.score(["Hund"], ["dog"]) == torch.score(["Hund"], ["dog"])
    assert both.attention("Hund", "dog").maps.cross.equal(torch.attention("Hund", "dog").maps.cross)
    monkeypatch.setattr(both.engine.fast, "search", lambda *_: pytest.fail("CTranslate2 was taken"))
    monkeypatch.setattr(both.engine.fast, "takes", lambda source, extra_length: len(source) < 4)
    assert both.translate(LINES) == torch.translate(LINES)


def test_the_engine_is_chosen_by_folder_name_and_device(engines, folders, tmp_path, monkeypatch):
    folder = model_folder(tmp_path / "model")
    assert isinstance(Translator.load(folder).engine, TorchEngine)  # no export
    assert isinstance(Translator.load(folders / "int8").engine, CTranslate2Engine)  # no weights
    with pytest.raises(ValueError, match=r"engine=ctranslate2 needs one model folder, with model\.bin in it"):
        Translator.load(folder, engine="ctranslate2")
    with pytest.raises(ValueError, match="engine='fast' must be one of auto, torch, ctranslate2"):
        Translator.load(folder, engine="fast")
    add_export(folder, folder, "float32")
    assert isinstance(Translator.load(folder, folder).engine, TorchEngine)  # an ensemble
    with monkeypatch.context() as without_torch:
        without_torch.setattr("transformer.inference.both_engines.find_spec", lambda name: None)
        assert isinstance(Translator.load(folder).engine, CTranslate2Engine)
    monkeypatch.setattr("transformer.inference.ctranslate2_engine.has_gpu", lambda: True)
    assert isinstance(Translator.load(folder).engine, TorchEngine)


def test_torch_takes_one_thread_for_a_single_sentence(monkeypatch):
    threads = []
    monkeypatch.setattr(pytorch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(pytorch, "set_num_threads", threads.append)
    for sources in ([[4]], [[4], [5]]):
        with threads_for(sources):
            pass
    assert threads == [1, 2, 2, 2]


def test_ctranslate2_starts_few_batches_ahead_and_can_be_ended(engines, monkeypatch):
    """A server ends the work of a sender who has gone: then at most two batches a core are computed in vain."""
    engine, started = engines[1].engine, []
    assert isinstance(engine, CTranslate2Engine)
    start = engine._start
    monkeypatch.setattr(engine, "_start", lambda *job, **more: started.append(job[0]) or start(*job, **more))

    def end() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.search([[5, 6]] * 100, SearchConfig(extra_length=1), before_step=end, batch_tokens=1)
    assert len(started) == 2 * cores() + 1
    started.clear()
    engine.search([[5, 6]] * 7, SearchConfig(extra_length=1))
    assert max(map(len, started)) == -(-7 // cores())  # few sentences are divided among the cores


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


@pytest.mark.parametrize("name", [*EXPORT_FILES, "vocab.txt", "bpe.codes", "model.json"])
def test_a_damaged_export_is_an_error_with_its_file(folders, tmp_path, name):
    """CTranslate2 takes a changed number or subword as it is."""
    shutil.copytree(folders / "float32", tmp_path / "model")
    path = tmp_path / "model" / name
    path.write_bytes(path.read_bytes()[:-1] + {"vocab.txt": b"x", "bpe.codes": b""}.get(name, b" "))
    with pytest.raises(ValueError, match=f"model: {name} is not the file that exported.sha256 describes"):
        Translator.load(tmp_path / "model")


def test_an_export_of_other_weights_is_refused(tmp_path):
    for name, seed in (("model", 1), ("other", 2)):
        model_folder(tmp_path / name, seed=seed)
    add_export(tmp_path / "model", tmp_path / "model", "float32")
    assert Translator.load(tmp_path / "model").translate(["Hund"])
    shutil.copyfile(tmp_path / "other/weights.safetensors", tmp_path / "model/weights.safetensors")
    with pytest.raises(ValueError, match=r"model: weights\.safetensors is not the file that"):
        Translator.load(tmp_path / "model")


def test_a_method_that_ctranslate2_lacks_is_an_error_with_its_name(folders):
    translator = Translator.load(folders / "float32")
    calls = {"sample": lambda: translator.sample(["Hund"]), "score": lambda: translator.score(["Hund"], ["dog"])}
    for name, call in calls.items():
        with pytest.raises(ValueError, match=f"{name} needs torch"):
            call()
    with pytest.raises(ValueError, match=f"{folders}/float32 has a model for CTranslate2 alone"):
        Translator.load(folders / "float32", folders / "float32")
