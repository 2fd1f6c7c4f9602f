"""What a stage depends on, as it was when the stage started.

DVC writes deps and params to dvc.lock when a stage has ended. An edit while it ran would then be recorded as what made
the result.
"""

from __future__ import annotations

import os
from pathlib import Path

from pipeline.versions import running_stage
from transformer.files import sha256

BIG = 10_000_000  # bytes: a larger file is compared by size and time of change


def snapshot() -> dict[str, str]:
    """The deps that no stage makes, and the params, of the stage that DVC runs in this process: name -> content.

    Empty if DVC runs none, or if this is not the first process of the stage.
    """
    if "DVC_STAGE" not in os.environ or int(os.environ.get("RANK", 0)):
        return {}
    from pipeline.experiments.stale import params_of, path_of, stages_of  # imported here: it imports SciPy
    from pipeline.tracking.results import parsed

    values = parsed(Path("params.yaml").read_text(encoding="utf-8"))
    stages = stages_of(Path("dvc.yaml").read_text(encoding="utf-8"), values)
    stage = stages.get(running_stage(), {})
    outs = [out for one in stages.values() for kind in ("outs", "metrics", "plots") for out in one.get(kind, [])]
    made = set(map(path_of, outs))
    found = {path: state(Path(path)) for path in map(path_of, stage.get("deps", [])) if path not in made}
    for file, names in params_of(stage):
        values = parsed(Path(file).read_text(encoding="utf-8"))
        found |= {name: repr(values.get(name)) for name in names or values}
    return found


def state(path: Path) -> str:
    """The content of a file or folder, in a form to compare; of a large file its size and time of change."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
        return "".join(f"{file} {state(file)}\n" for file in files)
    if not path.exists():
        return "missing"
    facts = path.stat()
    return sha256(path) if facts.st_size < BIG else f"{facts.st_size} {facts.st_mtime_ns}"


def check_unchanged(before: dict[str, str]) -> None:
    """Raise ValueError if what a stage depends on was edited since `before` was taken by `snapshot`."""
    after = snapshot() if before else {}
    if changed := sorted(name for name in before | after if before.get(name) != after.get(name)):
        raise ValueError(
            f"{', '.join(changed)} changed while stage {running_stage()} ran. Its results are of what was there "
            "before, so DVC does not record them. Run `dvc repro` for the new content. If you restore the former "
            "content, a training is not repeated."
        )
