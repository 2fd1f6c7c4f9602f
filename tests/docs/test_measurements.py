"""The sentences of the walkthrough follow its numbers, and the numbers are those that the code computes.

`make test-all` measures everything anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.tiny import ROOT

from docs.make import measurements, program, recorded_run, sentences, trainings, walkthrough


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize(
    ("values", "second", "words"),
    [
        ([2, 3], [3, 3.5], "lower than the usual 3.25, by 0.50 to 1.00."),
        ([4, 5.5], [3, 5], "higher than the usual 4.00, by 0.50 to 1.00."),
        ([1, 5], [3, 4], "not clearly different from the usual 3.50: with the same seed between -2.00 and +1.00."),
    ],
)
def test_a_sentence_follows_its_numbers(values, second, words):
    """Seed by seed: ranges that overlap may still differ clearly, as 4 to 5.5 and 3 to 5 do."""
    functions = sentences.sentences({"trainings": {"a": {"loss": values}, "b": {"loss": second}}, "setup": {}})
    assert functions["sentence"]("a", "b", "Without it").endswith(f", {words}")
    assert words.startswith(functions["against"]("a", "b").removeprefix("loss "))


def test_sentences_on_speed_and_beams_follow_too():
    times = {"a": {"plain": 1, "fast": 2}, "b": {"plain": 2, "fast": 1}}
    assert sentences.speed_sentence(times) == "On this machine `a` gained nothing."
    assert sentences.speed_sentence({"b": times["b"]}) == "Each is faster on this machine."
    for widest, words in (
        ([17, 19], "most of it, not all."),
        ([17, 20], "all of it."),
        ([17, 18], "less than half of it."),
    ):
        assert sentences.beams_sentence(20 if widest[1] == 20 else 19.5, widest).endswith(f"takes back {words}")
    assert sentences.beams_sentence(19, [20, 21]) == (
        "More beams gain 1.0 BLEU without a length penalty, 2.0 with the best one."
    )


def test_the_curve_has_the_last_validation_and_those_at_each_25_updates(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("reports").mkdir()
    rows = ["5,,0.1", "20,4.0,0.1", "25,3.5,0.1", "50,3.0,0.1", "60,2.5,0.1"]
    Path("reports/training.csv").write_text("\n".join(["step,valid_loss,learning_rate", *rows, ""]))
    assert recorded_run.curve() == [(25, 3.5), (50, 3.0), (60, 2.5)]


def differences(new: Any, old: Any, place: str = "") -> list[str]:
    """The places where two results differ by more than rounding. Times may differ."""
    if isinstance(old, dict):
        return [
            line for name in old if name != "speed" for line in differences(new[name], old[name], f"{place}/{name}")
        ]
    if isinstance(old, list):
        parts = zip(new, old, strict=True)
        return [line for number, (a, b) in enumerate(parts) for line in differences(a, b, f"{place}/{number}")]
    if isinstance(old, float):
        equal = new == pytest.approx(old, rel=1e-3, abs=1e-9)
        return [] if equal else [f"{place}: {old} became {new}"]
    return [] if new == old else [f"{place}: {old!r} became {new!r}"]


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(measurements.MEASURES.keys() - {"trainings"}))
def test_a_number_that_is_computed_is_the_one_on_the_page(name):
    new = json.loads(walkthrough.as_json(measurements.measure([name])))[name]
    assert differences(new, walkthrough.measured()[name]) == []


@pytest.mark.full
def test_the_program_prints_what_the_page_shows():
    new = json.loads(walkthrough.as_json(program.measure(walkthrough.markdown())))
    assert differences(new, walkthrough.measured()["program"]) == []


@pytest.mark.full
@pytest.mark.parametrize("name", trainings.SETUPS)
def test_a_training_ends_within_the_range_of_its_seeds(name):
    """Another processor rounds differently; so the range of the page, widened by a twentieth of the loss, must hold."""
    old = walkthrough.measured()["trainings"][name]["loss"]
    new = trainings.trained(trainings.SETUPS[name], trainings.SEEDS[0])["loss"]
    assert 0.95 * min(old) <= new <= 1.05 * max(old)
