"""What a user waits for: from starting a program to its first translation of a sentence, and then to the second.

Each program is started anew, in turn, round after round; results are medians of rounds. This project and CTranslate2
load the model folder; the model of another program has its shape and random weights, built in place of loading, and
makes 8 subwords.

    python -m benchmarks.startup data/model --json startup.json
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from benchmarks.decoders import PLACES
from benchmarks.table import text_table
from pipeline.workflow.stage import run
from transformer.inference.translator import Translator

OURS = {"ours": "auto", "ours, torch": "torch"}  # program -> --engine
COLUMNS = {
    "program": ("program", "{}"),
    "first": ("first, s", "{:.2f}"),
    "second": ("second, ms", "{:.0f}"),
    "cpu": ("processor time, s", "{:.2f}"),
}


def command_of(program: str, model: Path) -> list[str]:
    """The command line of a process that translates each line it reads."""
    if program in OURS:
        return [sys.executable, "-m", "transformer", str(model), "--engine", OURS[program]]
    return [sys.executable, "-m", "benchmarks.startup_worker", program, str(model)]


def measure(program: str, model: Path, line: str) -> dict[str, float]:
    """Seconds to the first translation, milliseconds to the second, and processor time of the process in seconds."""
    start = time.perf_counter()
    process = subprocess.Popen(
        command_of(program, model), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdin
    assert process.stdout
    times = [start]
    for _ in range(2):
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
        if not process.stdout.readline():
            raise ValueError(
                f"{program} ended before it had translated. Type `{' '.join(command_of(program, model))}`."
            )
        times.append(time.perf_counter())
    process.stdin.close()
    _, _, used = os.wait4(process.pid, 0)
    return {"first": times[1] - start, "second": 1000 * (times[2] - times[1]), "cpu": used.ru_utime + used.ru_stime}


def main() -> None:
    """Measure all programs that are installed, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("model", type=Path, help="model folder")
    add("--line", default="Ein Hund schläft .", metavar="TEXT", help="the sentence, its words separated by spaces")
    add("--rounds", type=int, default=5, metavar="N")
    add("--json", type=Path, metavar="FILE", help="write the rows")
    asked = parser.parse_args()
    subwords = " ".join(Translator.load(asked.model).subwords([asked.line])[0])
    programs = [*OURS, *(name for name, place in PLACES.items() if name != "ours" and find_spec(place))]
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in programs}
    for _ in range(asked.rounds):
        for name in programs:
            rounds[name].append(measure(name, asked.model, asked.line if name in OURS else subwords))
    rows = [
        {"program": name, **{key: median(turn[key] for turn in turns) for key in turns[0]}}
        for name, turns in rounds.items()
    ]
    print(text_table(rows, COLUMNS))
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    run(main)
