"""Repeat a commit or an experiment in a clean clone and compare each out with the recorded one.

    python -m pipeline verify           # HEAD
    python -m pipeline verify EXP       # an experiment (`dvc exp show`), commit, branch or tag

Exit status: 0 all outs are identical, byte for byte; 2 some are only within tolerance; 3 some differ; 1 the pipeline
could not be run. Each stage is run, without DVC's cache, and your MLflow runs do not change. On a CPU the repetition
uses as many threads and processes as were recorded, unless OMP_NUM_THREADS or DEVICES is set. The clone is in work/.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd

from pipeline.shared.git import command
from pipeline.shared.results import Experiment, Results, WorkTree
from pipeline.shared.run_record import recorded_environment
from pipeline.shared.stage import project_root, renamed
from transformer.cores import cores

# Stages with floating-point results, which may differ between machines. The outs of all other stages may not.
NUMERIC = (
    "train",
    "average",
    "export",
    "translate",
    "compare_engines",
    "score",
    "report",
    "record",
    "register",
)  # the last: version 0.1
POINTS, SHARE = 0.5, 0.02  # tolerance: of a score in percent, absolutely; of another number, relatively
FACTS = "reports/environment.json"
NO_NUMBERS = ("reports/signatures.json", "data/run.json", "data/row.json")
STATUS = {"identical": 0, "within tolerance": 2, "different": 3}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", nargs="?", default="HEAD", metavar="EXP", help="default: HEAD")
    parser.add_argument("--keep", action="store_true", help="keep the clone, to inspect the differences")
    given = parser.parse_args()
    recorded = Experiment(given.experiment)
    recorded.check_fresh()
    clone = project_root() / "work" / f"verify-{recorded.commit[:10]}"
    shutil.rmtree(clone, ignore_errors=True)
    try:
        prepare(recorded, clone)
        repeat(clone, as_recorded(recorded))
        table = compared(recorded, WorkTree(root=clone))
        print(table.to_string(index=False))
        environment = differences(recorded, json.loads((clone / FACTS).read_text(encoding="utf-8")))
        print("\nenvironment: " + ("the same as recorded" if environment.empty else ""))
        if not environment.empty:
            print(environment.to_string(index=False))
    finally:
        if not given.keep:
            shutil.rmtree(clone, ignore_errors=True)
    worst = max(table["verdict"], key=lambda verdict: STATUS[verdict])
    print(f"\n{recorded.name}: {worst}" + (f"; the clone is {clone}" if given.keep else ""))
    sys.exit(STATUS[worst])


def prepare(recorded: Experiment, clone: Path) -> None:
    """Make the clone, with a DVC cache of its own, and copy the inputs that are not in git."""
    command("git", "clone", "--quiet", "--shared", "--no-checkout", ".", str(clone))
    command("git", "-C", str(clone), "checkout", "--quiet", "--detach", recorded.commit)
    outs = set(recorded.hashes)
    for entry in recorded.lock().values():
        for dep in entry.get("deps", []):
            path = Path(dep["path"])
            if (clone / path).exists() or any(str(one) in outs for one in (path, *path.parents)):
                continue
            if not path.exists():
                raise ValueError(f"{path}, a dependency of {recorded.name}, is neither in git nor in this folder")
            copy = shutil.copytree if path.is_dir() else shutil.copyfile
            (clone / path).parent.mkdir(parents=True, exist_ok=True)
            copy(path, clone / path)
    (clone / "dvc.lock").unlink()  # with it DVC would skip stages whose reports are in git
    local = clone / ".dvc" / "config.local"
    local.write_text(f"[cache]\n    dir = {json.dumps(str(clone / '.dvc' / 'cache'))}\n", encoding="utf-8")


def as_recorded(recorded: Results) -> dict[str, str]:
    """Variables for as many threads and processes as were recorded, since the order of sums depends on them.

    Empty if a GPU was used or this machine has fewer cores.
    """
    facts = recorded_environment(recorded)
    threads, devices = int(facts.get("threads", 0)), int(facts.get("devices", 1))
    if facts.get("device") != "CPU" or not 0 < threads * devices <= cores():
        return {}
    return {"OMP_NUM_THREADS": str(threads), "DEVICES": str(devices)}


def repeat(clone: Path, same: dict[str, str]) -> None:
    """Run the pipeline in the clone and print the name of each stage as it starts. Raises ValueError if one fails.

    same: environment variables of the recorded run, which this process's own ones override.
    """
    kept = same | {name: value for name, value in os.environ.items() if not name.startswith(("DVC_", "MLFLOW_"))}
    kept["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"
    log = clone.with_suffix(".log")
    with open(log, "w", encoding="utf-8") as file:
        process = subprocess.Popen([sys.executable, "-m", "dvc", "repro"], cwd=clone, env=kept, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
        assert process.stdout
        for line in process.stdout:
            file.write(line)
            if line.startswith("Running stage"):
                print(line, end="", flush=True)
    if process.wait():
        raise ValueError(f"A stage of the repetition failed. {log} has its output.")
    log.unlink()
    print()


def compared(recorded: Results, new: Results) -> pd.DataFrame:
    """A table with a row per recorded out: stage, out, both hashes, verdict."""
    outs = {(stage, out["path"]): out["md5"] for stage, entry in new.lock().items() for out in entry.get("outs", [])}
    close = near(recorded, new, "reports/scores.json")
    rows = []
    for stage, entry in recorded.lock().items():
        for out in entry.get("outs", []):
            path, old = out["path"], out["md5"]
            if path == FACTS:  # printed separately
                continue
            found = outs.get((stage, path), "missing")
            verdict = "identical" if found == old else "different"
            if verdict == "different" and stage in NUMERIC and found != "missing":
                held = path.endswith((".csv", ".json")) and path not in NO_NUMBERS
                verdict = "within tolerance" if (near(recorded, new, path) if held else close) else "different"
            rows.append({"stage": stage, "out": path, "recorded": old[:10], "new": found[:10], "verdict": verdict})
    return pd.DataFrame(rows)


def near(recorded: Results, new: Results, path: str) -> bool:
    """Whether the numbers of a report agree within tolerance; for a curve, the mean over its rows is compared."""
    old, now = recorded.text(path), new.text(path)
    if path.endswith(".csv"):
        before, after = (pd.read_csv(io.StringIO(text)) for text in (old, now))
        if list(before.columns) != list(after.columns) or len(before) != len(after):
            return False
        return bool((((after - before).abs() / before.abs()).mean() <= SHARE).all())
    before, after = json.loads(old), json.loads(now)
    room = POINTS if path != "reports/training.json" else 0
    return before.keys() == after.keys() and all(
        abs(after[name] - before[name]) <= max(room, SHARE * abs(before[name])) for name in before
    )


def differences(recorded: Results, here: dict) -> pd.DataFrame:
    """A table with a row per fact of this environment that differs from the recorded one, or was not recorded."""
    known = {name: str(value) for name, value in recorded_environment(recorded).items()} or pinned(recorded)
    other = {name: str(value) for name, value in here.items()
             if known.get(name, "").split("+")[0] != str(value).split("+")[0]}  # fmt: skip
    rows = [{"fact": name, "recorded": known.get(name, "not recorded"), "here": value} for name, value in other.items()]
    return pd.DataFrame(rows)


def pinned(recorded: Results) -> dict[str, str]:
    """Package versions in the commit's requirements.lock: used if its environment.json is not in the cache."""
    try:
        lines = recorded.text("requirements.lock").split("\n")
    except ValueError:
        return {}
    return dict(line.split("==", 1) for line in lines if "==" in line and not line.startswith("#"))


if __name__ == "__main__":
    renamed("verify", main)
