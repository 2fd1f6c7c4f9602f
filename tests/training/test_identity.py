"""What a training's states depend on: a change that can alter an update starts a new training, and no other change."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pipeline.training.identity import changed_since, code_key

SOURCE = '''
"""A module."""
import math  # for exp


def f(x: float) -> float:
    """Double."""
    return 2 * x


class A:
    """A class that is a docstring only."""
'''


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("# for exp", "# for exp(x), and nothing else", True),
        ('"""Double."""', '"""Twice x."""', True),
        ('    """Double."""\n', "", True),
        ('"""A module."""', "", True),
        ("A class that is", "Still", True),
        ("\n\n\ndef", "\n\n# a comment\n\ndef", True),
        ("2 * x", "(2 * x)", True),
        ("2 * x", "2.5 * x", False),
        ("2 * x", "x * 2", False),
        ("import math", "import cmath", False),
    ],
)
def test_a_training_does_not_depend_on_comments_docstrings_and_layout(old, new, same):
    changed = SOURCE.replace(old, new)
    assert changed != SOURCE
    assert (code_key(changed) == code_key(SOURCE)) is same


def test_the_most_similar_training_shows_what_changed(tmp_path: Path):
    identity = {
        "knobs": {"seed": 1},
        "data": {"ids": "x"},
        "code": {"loss": "a", "model": "b"},
        "versions": {"torch": "2"},
    }
    trainings = {
        "train-1": {**identity, "knobs": {"seed": 2}},
        "train-2": {**identity, "code": {"loss": "A"}},
        "train-3": {**identity, "versions": {"torch": "1"}},
    }
    for name, other in trainings.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "identity.json").write_text(json.dumps(other))
    assert changed_since(tmp_path / "train-4", identity) == "torch changed since train-3"
    shutil.rmtree(tmp_path / "train-3")
    assert changed_since(tmp_path / "train-4", identity) == "loss, model changed since train-2"
    shutil.rmtree(tmp_path / "train-2")
    assert changed_since(tmp_path / "train-4", identity) == ""
