"""The inputs of a stage that DVC runs: whether one was edited since the stage began.

DVC hashes inputs only after a stage, so an edit in between would count as the input.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline import IMPORTED, Facts, facts_of
from pipeline.workflow.dvc_yaml import params_of, stages_here
from pipeline.workflow.params import read_values
from transformer.files import Mistake, content_key

INPUTS = "STAGE_INPUTS"  # environment variable: what `check_inputs` compares, as JSON


@contextmanager
def unchanged_inputs(name: str, stage: Mapping[str, Any]) -> Iterator[None]:
    """Surround the work of a stage. Raises Mistake before and after it if an input was edited since it began.

    stage: its entry in dvc.yaml. If the work raises, its own error goes on, without a second check.
    """
    os.environ[INPUTS] = json.dumps([name, inputs_of(stage, IMPORTED)])
    try:
        check_inputs()
        yield
        check_inputs()
    finally:
        del os.environ[INPUTS]


def check_inputs() -> None:
    """Raise Mistake if inputs of the stage that DVC runs were edited since it began. Several processes may call this.

    A training also calls it before its first update, so that no state comes from an edit that is undone later.
    """
    if INPUTS not in os.environ:
        return
    name, before = json.loads(os.environ[INPUTS])
    now = inputs_of(stages_here()[name])
    if changed := sorted(key for key in before | now if before.get(key) != now.get(key)):
        raise Mistake(
            f"{', '.join(changed)} changed while stage {name} ran. The results belong to the old content, so they were "
            "not recorded. Run `dvc repro`."
        )


def inputs_of(stage: Mapping[str, Any], imported: Mapping[str, Facts] | None = None) -> dict[str, str]:
    """The state of a stage's inputs: dep -> a hash of its files' names and facts; param -> its value.

    imported: facts of files, which count in place of those that the files have now.
    """
    inputs: dict[str, str] = {}
    for file, names in params_of(stage):
        values = read_values(file)
        keys = {name: f"{name} of {file}" if name in stage["deps"] else name for name in names or values}
        inputs |= {key: repr(values.get(name)) for name, key in keys.items()}
    for dep in stage["deps"]:
        names = {file.as_posix(): file for file in files_of(Path(dep))}
        inputs[dep] = content_key(**{name: (imported or {}).get(name) or facts_of(names[name]) for name in names})
    return inputs


def files_of(path: Path) -> list[Path]:
    """A file, or the files in a folder, but for Python's caches."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sorted(file for file in files if file.is_file() and file.suffix != ".pyc")
