"""The check of a CUDA device, in parts of at most 8 minutes that run alone and in any order.

    python -m benchmarks.gpu                              # all parts
    python -m benchmarks.gpu losses speed-base-25k        # some parts
    python -m benchmarks.gpu --json gpu.json              # also add the results to a file

A part that fails, takes too long, or cannot run here has the reason in place of its table. Without a GPU every part is
skipped. The aim on one H200: 700,000 target tokens per second.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import torch

from benchmarks.gpu_parts import PARTS, Skipped
from transformer.files import mistake_line, write_json

SECONDS = 480  # of a part at most
LEFT_OUT = ["device", "rounds"]  # columns that are the same in all rows, or too long


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("parts", nargs="*", metavar="PART", help=f"some of {', '.join(PARTS)}; default: all")
    add("--json", type=Path, metavar="FILE", help="add the results to those in a file")
    add("--seconds", type=int, default=SECONDS, metavar="N", help="the most that a part may take")
    add("--in-this-process", action="store_true", help=argparse.SUPPRESS)  # of one part, whose rows are printed
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"{', '.join(sorted(unknown))}: no such part. The parts are {', '.join(PARTS)}.")
    return asked


def machine() -> dict[str, str]:
    """What the numbers were measured on."""
    if not torch.cuda.is_available():
        return {"device": "none", "torch": torch.__version__}
    count, memory = torch.cuda.device_count(), torch.cuda.get_device_properties(0).total_memory / 2**30
    name = f"{count} x {torch.cuda.get_device_name(0)}, {memory:.0f} GiB"
    return {"device": name, "torch": torch.__version__, "cuda": str(torch.version.cuda)}


def run_here(part: str) -> dict:
    """The outcome of a part, run in this process: rows, or why it was skipped."""
    if not torch.cuda.is_available():
        return {"skipped": "torch finds no CUDA device"}
    try:
        return {"rows": PARTS[part]()}
    except Skipped as reason:
        return {"skipped": str(reason)}
    except ModuleNotFoundError as error:
        if not mistake_line(error):
            raise
        return {"skipped": f"the package {error.name} is not installed"}


def command_of(part: str) -> list[str]:
    """The command that runs a part in a process of its own."""
    return [sys.executable, "-m", "benchmarks.gpu", part, "--in-this-process"]


def run_apart(part: str, seconds: int) -> dict:
    """The outcome of a part, run in a process of its own: rows, why it was skipped, or how it failed."""
    start = time.perf_counter()
    pipe = subprocess.PIPE
    child = subprocess.Popen(command_of(part), stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    try:
        output, errors = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)  # also the processes that the part started
        child.wait()
        return {"failed": f"it took longer than {seconds} s"}
    if child.returncode:
        return {"failed": (errors.strip().split("\n") or ["no message"])[-1]}
    outcome = json.loads(output.strip().split("\n")[-1])
    return outcome | ({"seconds": round(time.perf_counter() - start)} if "rows" in outcome else {})


def main() -> None:
    asked = options()
    if asked.in_this_process:
        print(json.dumps(run_here(asked.parts[0])))
        return
    print(machine(), flush=True)
    for part in asked.parts or PARTS:
        outcome = run_apart(part, asked.seconds) | {"machine": machine()}
        print(f"\n{part}: {outcome.get('skipped') or outcome.get('failed') or ''}", flush=True)
        if "rows" in outcome:
            print(pd.DataFrame(outcome["rows"]).drop(columns=LEFT_OUT, errors="ignore").to_string(index=False))
        if asked.json:
            results = json.loads(asked.json.read_text(encoding="utf-8")) if asked.json.is_file() else {}
            write_json(asked.json, results | {part: outcome})


if __name__ == "__main__":
    main()
