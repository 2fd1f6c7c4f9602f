"""What a training's states depend on: a change that can alter an update starts a new training, and no other change."""

from __future__ import annotations

import ast
import json
import shutil
from pathlib import Path

import pytest

from pipeline.training.back_translations import CODE as TRANSLATIONS
from pipeline.training.identity import changed_since, code_key, code_keys
from pipeline.training.job import CODE

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
    assert (code_key(ast.parse(changed)) == code_key(ast.parse(SOURCE))) is same


def write(root: Path, files: dict[str, str]) -> None:
    """Write files of code: path -> text."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def test_the_code_of_a_training_is_what_it_imports(tmp_path):
    """Also where an import stands in a function; whatever else this process has imported."""
    write(
        tmp_path,
        {
            "transformer/a.py": "def f():\n    from transformer.room import b\n",
            "transformer/room/b.py": "import transformer.c\nimport pipeline.workflow.stage\n",
            "transformer/c.py": "import transformer.a\n",
            "transformer/other.py": "",
            "pipeline/workflow/stage.py": "import transformer.other\n",
        },
    )
    keys = code_keys("transformer/a.py", root=tmp_path)
    assert list(keys) == ["transformer/a.py", "transformer/c.py", "transformer/room/b.py"]
    (tmp_path / "transformer/c.py").write_text("import transformer.a\nx = 1\n")
    after = code_keys("transformer/a.py", root=tmp_path)
    assert [path for path in keys if keys[path] != after[path]] == ["transformer/c.py"]


def test_a_training_depends_on_its_loop_and_not_on_remarks():
    keys = code_keys(*CODE)
    assert {"transformer/training/loop.py", "transformer/training/loss.py", "transformer/model/attention.py"} < {*keys}
    assert "transformer/inference/remarks.py" not in keys
    assert "transformer/inference/remarks.py" in code_keys(*TRANSLATIONS)


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
