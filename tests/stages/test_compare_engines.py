"""The stage compare_engines fails for an export that translates differently or worse."""

import json
import sys
from types import SimpleNamespace

import pytest
from support.projects import params_file

from pipeline import compare_engines
from pipeline.compare_engines import float32_difference, int8_loss
from transformer.files import Mistake
from transformer.inference.translator import Translator

GOOD = {
    "float32_identical_beam_1": 99.6,
    "float32_identical_beam_4": 99.1,
    "torch_bleu_beam_1": 40.0,
    "torch_bleu_beam_4": 41.0,
    "int8_bleu_beam_1": 39.6,
    "int8_bleu_beam_4": 40.6,
}


@pytest.mark.parametrize(
    ("worse", "float32", "int8"),
    [
        ({"float32_identical_beam_1": 99.4}, "beam 1, 99.40% of the translations of valid", ""),
        ({"float32_identical_beam_4": 98.9}, "and 99.0% are required", ""),
        ({"int8_bleu_beam_4": 40.4}, "", "int8 loses 0.60 BLEU"),
    ],
)
def test_each_export_is_judged_by_its_own_numbers(worse, float32, int8):
    assert float32_difference(GOOD, 1000) == int8_loss(GOOD) == ""
    for message, shown in ((float32, float32_difference(GOOD | worse, 1000)), (int8, int8_loss(GOOD | worse))):
        assert message in shown
        assert bool(message) == bool(shown)


@pytest.mark.parametrize(
    "report",
    [
        {"torch_bleu_beam_1": 4.9, "torch_bleu_beam_4": 4.9, "float32_identical_beam_1": 10.0},
        {"torch_bleu_beam_1": None, "torch_bleu_beam_4": None, "float32_identical_beam_1": None},
        {"float32_identical_beam_4": None},
    ],
)
def test_what_was_not_measured_is_no_agreement(report):
    """As of a model that is hardly trained, whose translations are near-ties, or where an engine failed."""
    assert float32_difference(GOOD | report, 1000) is None
    assert int8_loss(GOOD | report) == ""


def test_one_different_sentence_is_always_allowed():
    assert float32_difference(GOOD | {"float32_identical_beam_1": 100 * 11 / 12}, 12) == ""


def test_the_engine_in_use_is_refused_for_float32_alone(tmp_path, monkeypatch, capsys):
    """What int8 loses is printed; no stage translates by int8, and no registered model has it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data/raw").mkdir(parents=True)
    for name in ("model", "ct2"):
        (tmp_path / "data" / name).mkdir()
    for side in ("src", "tgt"):
        (tmp_path / f"data/raw/valid.{side}").write_text("a b c d e\n" * 12)
    params_file(tmp_path, engine="ctranslate2")
    monkeypatch.setattr(sys, "argv", ["compare_engines"])

    def worse(name: tuple[str, str]) -> None:
        bad = SimpleNamespace(translate=lambda lines, **_: ["x"] * len(lines))
        good = SimpleNamespace(translate=lambda lines, **_: lines)
        monkeypatch.setattr(
            Translator, "load", lambda *loaded, engine: bad if (loaded[0].name, engine) == name else good
        )

    def fail(*words: object, **named: object) -> None:
        raise Mistake("no finite numbers")

    monkeypatch.setattr(Translator, "load", lambda *_, engine: SimpleNamespace(translate=fail))
    compare_engines.main()
    assert {*json.loads((tmp_path / "reports/engines.json").read_text()).values()} == {None}
    worse(("int8", "ctranslate2"))
    compare_engines.main()
    assert json.loads((tmp_path / "reports/engines.json").read_text())["engines_agree"] is True
    assert "data/ct2/int8 loses" in capsys.readouterr().out
    worse(("model", "ctranslate2"))
    params_file(tmp_path)
    compare_engines.main()
    assert json.loads((tmp_path / "reports/engines.json").read_text())["engines_agree"] is False
    assert "The engines differ: at beam 1, " in (printed := capsys.readouterr().out)
    assert "Translate with engine=torch" in printed
    params_file(tmp_path, engine="ctranslate2")
    with pytest.raises(ValueError, match="engine=ctranslate2 is refused: at beam 1"):
        compare_engines.main()
