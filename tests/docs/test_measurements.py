"""The sentences of the walkthrough follow its numbers, and the numbers are those that the code computes.

`make test-all` measures everything anew.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest
from support.tiny import ROOT

from docs.make import measurements, program, sentences, trainings, walkthrough

# The trainings that the text compares: `sentence("a", "b", ...)`.
COMPARED = re.findall(r'sentence\("([^"]+)", "([^"]+)"', (ROOT / "docs/make" / walkthrough.TEXT).read_text("utf-8"))


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch):
    monkeypatch.chdir(ROOT)


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
@pytest.mark.parametrize("name", sorted(measurements.MEASURES.keys() - {"trainings", "longer"}))
def test_a_number_that_is_computed_is_the_one_on_the_page(name):
    new = json.loads(walkthrough.as_json(measurements.measure([name])))[name]
    assert differences(new, walkthrough.measured()[name]) == []


@pytest.mark.full
def test_the_program_prints_what_the_page_shows():
    """Another processor rounds differently, which grows in training: its end may have other digits."""
    new = json.loads(walkthrough.as_json(program.measured_program(walkthrough.markdown())))
    old = walkthrough.measured()["program"]
    assert new["losses"][:60] == pytest.approx(old["losses"][:60], rel=1e-6)
    assert new["losses"][-1] == pytest.approx(old["losses"][-1], rel=0.05)
    assert new["printed"][1].splitlines()[-1].endswith("[4, 5, 6, 7, 8, 9, 10, 11, 12, 13]")
    assert [new["printed"][i] for i in (0, 3, 4, 5)] == [old["printed"][i] for i in (0, 3, 4, 5)]


@pytest.mark.full
@pytest.mark.parametrize("name", program.EXERCISES)
def test_the_answer_of_an_exercise_comes_true(name):
    new, old = program.exercise(walkthrough.markdown(), name), walkthrough.measured()["exercises"][name]
    assert new["losses"][:60] == pytest.approx(old["losses"][:60], rel=1e-5)
    for step in (199, -1):
        assert new["losses"][step] == pytest.approx(old["losses"][step], rel=0.2)


@cache
def trained(name: str) -> dict[str, Any]:
    """A training with the first seed."""
    return trainings.trained(trainings.SETUPS[name], trainings.SEEDS[0])


@pytest.mark.full
@pytest.mark.parametrize("name", trainings.SETUPS)
def test_a_training_ends_where_it_did(name):
    """Another processor rounds differently; so a twentieth is allowed."""
    old = walkthrough.measured()["trainings"][name]
    new = trained(name)
    for key in ("loss", "sure", "right", "mean of checkpoints"):
        assert new[key] == pytest.approx(old[key][0], rel=0.05), key


@pytest.mark.full
@pytest.mark.parametrize("pair", COMPARED, ids=" against ".join)
def test_a_clear_difference_between_two_trainings_is_found_again(pair):
    old = walkthrough.measured()["trainings"]
    name, other = pair
    difference = trained(name)["loss"] - trained(other)["loss"]
    stored = old[name]["loss"][0] - old[other]["loss"][0]
    if sentences.relation(old[name]["loss"], old[other]["loss"]) in ("lower", "higher") and abs(stored) > 0.05:
        assert difference * stored > 0
