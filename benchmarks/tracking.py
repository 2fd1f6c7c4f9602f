"""What tracking costs a training: whole trainings with and without it, in alternation.

    python -m benchmarks.tracking                  # the recipe in params.yaml; needs data/ids (dvc repro encode)
    python -m benchmarks.tracking --rounds 5 --json tracking.json

Prints the seconds of each training, first to last update, and the ratio of the medians.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
TRAIN = """
import sys, time
from contextlib import nullcontext
import pipeline.train as stage
from transformer.loop import train
if sys.argv.pop(1) == "without":
    stage.TrainingRun = lambda *_: nullcontext()
def timed(*arguments, **options):
    start = time.perf_counter()
    state = train(*arguments, **options)
    print(f"seconds {time.perf_counter() - start}", flush=True)
    return state
stage.train = timed
start = time.perf_counter()
stage.main()
print(f"whole {time.perf_counter() - start}")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="trainings of each kind (default: 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all seconds")
    given = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {"with": [], "without": []}
    for place in range(given.rounds):
        for kind in ("with", "without") if place % 2 else ("without", "with"):  # neither is always the first
            found[kind].append(seconds(kind))
            print(kind, {name: round(value, 2) for name, value in found[kind][-1].items()}, flush=True)
    for name in ("seconds", "whole"):
        means = {kind: median(row[name] for row in rows) for kind, rows in found.items()}
        ratio = means["with"] / means["without"]
        print(
            f"{name}: {means['with']:.2f} s with tracking, {means['without']:.2f} s without: {100 * (ratio - 1):+.2f}%"
        )
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def seconds(kind: str) -> dict[str, float]:
    """Train once in a new folder: seconds of the updates, and of the whole stage from its first line."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(ROOT / "recipes", folder / "recipes")
        shutil.copytree(ROOT / "data/ids", folder / "data/ids")
        for path in ("params.yaml", "data/vocab.txt"):
            shutil.copyfile(ROOT / path, folder / path)
        env = {key: value for key, value in os.environ.items() if not key.startswith(("MLFLOW_", "DVC_"))}
        if kind == "with":  # the database is there, as for every training but a project's first
            made = "from pathlib import Path; from transformer.tracking import connect; connect(Path())"
            subprocess.run([sys.executable, "-c", made], cwd=folder, env=env | {"PYTHONPATH": str(ROOT)}, check=True)
        words = [sys.executable, "-c", TRAIN, kind]
        done = subprocess.run(words, cwd=folder, env=env | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        assert (folder / "mlflow.db").exists() == (kind == "with")
        return {key: float(value) for key, value in re.findall(r"^(seconds|whole) (\S+)", done.stdout, re.MULTILINE)}


if __name__ == "__main__":
    main()
