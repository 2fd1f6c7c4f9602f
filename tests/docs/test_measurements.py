"""The sentences of the walkthrough follow its numbers, and the numbers are those that the code computes.

`make test-all` measures everything anew.
"""

from __future__ import annotations

import json

import pytest
from support.tiny import ROOT

from docs.make import program, walkthrough


# The trainings that the text compares: `sentence("a", "b", ...)`.
@pytest.fixture(autouse=True)
def in_the_project(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.mark.full
def test_the_program_prints_what_the_page_shows():
    """Another processor rounds differently, which grows in training: its end may have other digits."""
    new = json.loads(walkthrough.as_json(program.measured_program(walkthrough.markdown())))
    old = walkthrough.measured()["program"]
    assert new["losses"][:60] == pytest.approx(old["losses"][:60], rel=1e-6)
    assert new["losses"][-1] == pytest.approx(old["losses"][-1], rel=0.05)
    assert new["printed"][1].splitlines()[-1].endswith("[4, 5, 6, 7, 8, 9, 10, 11, 12, 13]")
    assert [new["printed"][i] for i in (0, 3, 4, 5)] == [old["printed"][i] for i in (0, 3, 4, 5)]
