"""The sentences of the walkthrough follow its numbers, and the numbers are those that the code computes.

`make test-all` measures everything anew.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.tiny import ROOT

from docs.make import measurements, program, walkthrough


# The trainings that the text compares: `sentence("a", "b", ...)`.
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
