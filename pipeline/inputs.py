"""What a stage depends on, by dvc.yaml, and what made it, by dvc.lock; whether either was edited meanwhile."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from transformer.files import sha256

OUTS = ("outs", "metrics", "plots")  # what a stage writes, by the names of dvc.yaml
BIG = 10_000_000  # bytes: a larger file is compared by size and time of change


class Inputs(NamedTuple):
    """The inputs of a stage that no other stage writes. paths: deps. params: file -> names (none: the whole file).

    DVC writes deps and params to dvc.lock when a stage has ended. An edit while it ran would then be recorded as what
    made the result.
    """

    paths: list[str]
    params: dict[str, list[str]]

    @classmethod
    def read(cls, name: str, stages: Mapping[str, Any]) -> Inputs:
        """The inputs of a stage. stages: those of dvc.yaml."""
        values = read_values("params.yaml")
        written = {out for stage in stages.values() for out in outs(stage)}
        deps = [re.sub(r"\$\{(\w+)\}", lambda knob: str(values[knob[1]]), dep) for dep in stages[name]["deps"]]
        params: dict[str, list[str]] = {}
        for file, names in params_of(stages[name]):
            params[file] = params.get(file, []) + (names or list(read_values(file)))
        return cls([dep for dep in deps if dep not in written], params)

    def contents(self) -> dict[str, str]:
        """The content of each input, in a form to compare: name -> content."""
        files = {file: read_values(file) for file in self.params}
        return {path: content_of(Path(path)) for path in self.paths} | {
            name: repr(files[file].get(name)) for file, names in self.params.items() for name in names
        }


def check_params(params: Path, *inputs: Path) -> None:
    """Raise ValueError if a param was edited after a stage that made one of the inputs, directly or not, had run.

    params: params.yaml. A stage that a person starts may read other files, so it is not checked.
    """
    lock = Path("dvc.lock")
    if "DVC_STAGE" not in os.environ or not lock.exists():
        return
    values = read_values(params)
    for stage, entry in stages_above(read_values(lock)["stages"], map(str, inputs)).items():
        for name, value in entry.get("params", {}).get("params.yaml", {}).items():
            if values.get(name) != value:
                raise ValueError(
                    f"{name} was changed from {value} to {values.get(name)} after stage {stage} had run with {value}. "
                    "Nothing was written. Run `dvc repro`."
                )


def stages_above(lock: Mapping[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    """The stages in dvc.lock that made these paths, directly or not: name -> entry. lock: its stages.

    The entries of other stages may be of an earlier run.
    """
    stage_of = {out["path"]: stage for stage, entry in lock.items() for out in entry.get("outs", [])}
    waiting, stages = list(paths), set[str]()
    while waiting:
        path = waiting.pop()
        for folder in (path, *map(str, Path(path).parents)):
            stage = stage_of.get(folder)
            if stage and stage not in stages:
                stages.add(stage)
                waiting += [dep["path"] for dep in lock[stage].get("deps", [])]
    return {stage: entry for stage, entry in lock.items() if stage in stages}


def outs(stage: Mapping[str, Any]) -> list[str]:
    """The paths that a stage in dvc.yaml writes."""
    return [path_of(out) for kind in OUTS for out in stage.get(kind, [])]


def path_of(entry: str | Mapping[str, Any]) -> str:
    """The path of a dep or out in dvc.yaml."""
    return entry if isinstance(entry, str) else next(iter(entry))


def params_of(stage: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """The params of a stage in dvc.yaml: each file and its names; no names stand for all of the file."""
    for entry in stage.get("params", []):
        for file, names in (entry if isinstance(entry, dict) else {"params.yaml": [entry]}).items():
            yield file, names or []


def read_values(path: Path | str) -> dict[str, Any]:
    """The names and values of a YAML file, unchecked. Raises ValueError if it is not valid YAML."""
    try:
        return YAML(typ="safe").load(Path(path).read_text(encoding="utf-8")) or {}
    except YAMLError as error:
        raise ValueError(f"{path} is not valid YAML ({' '.join(str(error).split())[:150]}).") from None


def content_of(path: Path) -> str:
    """The content of a file or folder, in a form to compare; of a large file its size and time of change."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
        return "".join(f"{file} {content_of(file)}\n" for file in files)
    if not path.exists():
        return "missing"
    facts = path.stat()
    return sha256(path) if facts.st_size < BIG else f"{facts.st_size} {facts.st_mtime_ns}"


def is_code_newer(path: Path, moment: int) -> bool:
    """Whether a Python file, or one in a folder, was written after a moment (in ns): perhaps after its import."""
    files = path.rglob("*.py") if path.is_dir() else [path] if path.suffix == ".py" and path.exists() else []
    return any(file.stat().st_mtime_ns > moment for file in files)


def check_unchanged(name: str, changed: list[str]) -> None:
    """Raise ValueError if inputs of a stage were edited while it ran. changed: their paths."""
    if changed:
        raise ValueError(
            f"{', '.join(sorted(changed))} changed while stage {name} ran. The results belong to the old content, so "
            "they were not recorded. Run `dvc repro`. If you undo the edit first, no training is repeated."
        )
