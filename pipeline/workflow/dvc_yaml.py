"""What dvc.yaml says of each stage: deps, params, outs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.workflow.params import parse_yaml, read_values
from pipeline.workflow.versions import ROOT

OUTS = ("outs", "metrics", "plots")  # what a stage writes, by the names of dvc.yaml


def stages_here() -> dict[str, dict]:
    """The stages of this checkout, with the values of params.yaml in the current folder."""
    return stages_of((ROOT / "dvc.yaml").read_text(encoding="utf-8"), read_values("params.yaml"))


def stages_of(dvc_yaml: str, params: Mapping[str, object]) -> dict[str, dict]:
    """The stages in the text of a dvc.yaml, with the values of params in place of ${name}."""

    def fill(value: Any) -> Any:
        if isinstance(value, str):
            return re.sub(r"(?<!\\)\$\{(\w+)\}", lambda match: str(params.get(match[1], match[0])), value)
        if isinstance(value, list):
            return [fill(each) for each in value]
        return {fill(name): fill(each) for name, each in value.items()} if isinstance(value, dict) else value

    return fill(parse_yaml(dvc_yaml, "dvc.yaml")["stages"])


def outs_of(stage: Mapping[str, Any]) -> list[str]:
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
