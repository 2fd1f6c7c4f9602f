"""A stage that the leader's machine opens to others: its description as JSON, and what must be equal on all machines.

Only the module's name from MODULES, options, values and hashes pass: nothing that is executed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from ruamel.yaml import YAML

from pipeline.identity import code_key
from pipeline.versions import ROOT, installed, of_stage, running_stage
from transformer.files import sha256
from transformer.model.cpu import multiplies_bfloat16

MODULES = ("pipeline.train", "pipeline.back_translate")
MOST_BYTES = 1_000_000
Facts = dict[str, dict[str, Any]]  # knobs, data, code, versions, devices -> name -> value or hash


@dataclass(frozen=True)
class OpenStage:
    """A stage to take part in.

    module: one of MODULES. options: of its command line. params: all knobs.
    run_id: names this run of the stage. least, most: how many machines take part. facts: see `facts`.
    """

    module: str
    options: list[str]
    params: dict[str, Any]
    run_id: str
    least: int
    most: int
    facts: Facts

    def to_json(self) -> str:
        """The stage as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: bytes) -> OpenStage:
        """The stage that `to_json` wrote. Raises ValueError for anything else."""
        try:
            return cls._checked(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"What was received is no description of a stage ({error}). Use the same commit on all machines, and "
                "the address of the leader's machine."
            ) from None

    @classmethod
    def _checked(cls, text: bytes) -> OpenStage:
        """As `from_json`; the message of its ValueError is the reason alone."""
        if len(text) > MOST_BYTES:
            raise ValueError(f"{len(text):,} bytes are too many")
        values = json.loads(text)
        kinds = {
            "module": str,
            "options": list,
            "params": dict,
            "run_id": str,
            "least": int,
            "most": int,
            "facts": dict,
        }
        fits = isinstance(values, dict) and values.keys() == kinds.keys()
        if not fits or not all(isinstance(values[name], kind) for name, kind in kinds.items()):
            raise ValueError(f"it must have {', '.join(kinds)}, each of its type")
        stage = cls(**values)
        if stage.module not in MODULES:
            raise ValueError(f"module {stage.module!r} is not one of {', '.join(MODULES)}")
        if not all(isinstance(text, str) for text in stage.options):
            raise ValueError("options must be text")
        if not all(isinstance(some, dict) for some in stage.facts.values()):
            raise ValueError("facts must be names and values")
        return stage


def facts(identity: Facts, files: Sequence[Path], on_gpu: bool) -> Facts:
    """What must be equal on all machines, for the stage that this process runs.

    identity: of its training (Training.identity). files: others that it reads.
    """
    stage = YAML(typ="safe").load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"].get(running_stage(), {})
    deps = [ROOT / dep for dep in stage.get("deps", []) if dep.startswith(("pipeline/", "transformer"))]
    code = {file for dep in deps for file in (dep.rglob("*.py") if dep.is_dir() else [dep])}
    precision = {}
    if identity["knobs"]["precision"] == "bfloat16":  # a device without it computes in float32
        precision["bfloat16"] = multiplies_bfloat16(torch.device("cuda" if on_gpu else "cpu"))
    return {
        "knobs": identity["knobs"],
        "data": identity["data"] | {str(path): sha256(path) for path in files},
        "code": {file.relative_to(ROOT).as_posix(): code_key(file.read_text(encoding="utf-8")) for file in code},
        "versions": identity["versions"] | {name: installed(name) for name in of_stage(stage)},
        "devices": {"kind": "GPU" if on_gpu else "CPU"} | precision,
    }


def differences(here: Facts, there: Facts) -> str:
    """What differs between two machines, as "data ids; code pipeline/train.py; versions torch"; "" if nothing does.

    Of values that are no hashes, both are named.
    """
    found = []
    for part in sorted(here | there):
        one, other = here.get(part, {}), there.get(part, {})
        names = [name for name in sorted(one | other) if one.get(name) != other.get(name)]
        shown = part not in ("data", "code")
        texts = [f"{name} ({one.get(name)} here, {other.get(name)} there)" if shown else name for name in names]
        found += [f"{part} {', '.join(texts)}"] if names else []
    return "; ".join(found)
