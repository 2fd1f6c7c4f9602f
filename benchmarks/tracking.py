"""What tracking costs a training: two whole trainings, one with tracking and one without, take turns of a second.

    python -m benchmarks.tracking                  # the recipe in params.yaml; needs data/ids, data/back (dvc repro)
    python -m benchmarks.tracking --rounds 5 --json tracking.json

Prints for each pair the seconds of the turns of each training, from its first line to its end, and the added cost.
A change in the machine's speed affects both trainings. A training's clock also runs while it is stopped, so the pauses
between messages are doubled: as many updates lie between two messages as in a training that runs alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from itertools import cycle
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
TURN = 1.0  # seconds
WITHOUT = """
from contextlib import nullcontext
import pipeline.train as stage
stage.LiveRun = lambda *_, **__: nullcontext()
stage.run(stage.main)
"""
WITH = """
import pipeline.train as stage
from pipeline.tracking import live
live.PAUSE *= 2
stage.run(stage.main)
"""
PROGRAMS = {"with": ["-c", WITH], "without": ["-c", WITHOUT]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="pairs of trainings (default: 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all seconds")
    given = parser.parse_args()
    found = []
    for _ in range(given.rounds):
        found.append(pair())
        times = ", ".join(f"{kind} {seconds:.2f} s" for kind, seconds in found[-1].items())
        print(f"{times}: {100 * cost(found[-1]):+.2f}%", flush=True)
    print(f"median: {100 * median(map(cost, found)):+.2f}%")
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def cost(seconds: dict[str, float]) -> float:
    """The extra time of the training with tracking, as a share of the time of the other."""
    return seconds["with"] / seconds["without"] - 1


def pair() -> dict[str, float]:
    """Train with and without tracking in new folders, in turns, and return the seconds of each."""
    with tempfile.TemporaryDirectory() as name:
        running = {kind: start(kind, Path(name) / kind) for kind in PROGRAMS}
        seconds = dict.fromkeys(running, 0.0)
        try:
            for kind in cycle(("with", "without", "without", "with")):
                if running[kind].returncode is None:
                    seconds[kind] += turn(running[kind])
                if all(program.returncode is not None for program in running.values()):
                    break
        finally:
            for program in running.values():
                program.kill()
        for kind, program in running.items():
            if program.returncode:
                sys.exit((Path(name) / kind / "log").read_text(encoding="utf-8"))
            assert (Path(name) / kind / "mlflow.db").exists() == (kind == "with")
    return seconds


def start(kind: str, folder: Path) -> subprocess.Popen:
    """Start a training and stop it at once, until its first turn."""
    shutil.copytree(ROOT / "recipes", folder / "recipes")
    for path in ("data/ids", "data/back"):
        shutil.copytree(ROOT / path, folder / path)
    for path in ("params.yaml", "data/vocab.txt"):
        shutil.copyfile(ROOT / path, folder / path)
    env = {key: value for key, value in os.environ.items() if not key.startswith(("MLFLOW_", "DVC_"))}
    env |= {"PYTHONPATH": str(ROOT)}
    if kind == "with":  # make the database first: only a project's first training lacks one
        made = "from pathlib import Path; from pipeline.tracking.store import connect; connect(Path())"
        subprocess.run([sys.executable, "-c", made], cwd=folder, env=env, check=True)
    with open(folder / "log", "w", encoding="utf-8") as log:
        program = subprocess.Popen([sys.executable, *PROGRAMS[kind]], cwd=folder, env=env, stdout=log, stderr=log)
    program.send_signal(signal.SIGSTOP)
    return program


def turn(program: subprocess.Popen) -> float:
    """Let a program run for one turn or until it ends, and return the seconds that it ran."""
    begin = time.perf_counter()
    program.send_signal(signal.SIGCONT)
    try:
        program.wait(TURN)
    except subprocess.TimeoutExpired:
        program.send_signal(signal.SIGSTOP)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
