"""The time of an update of this project's trainer by operation, measured by torch's profiler.

    python -m benchmarks.profile --size base
    python -m benchmarks.profile --size base --device cuda --batch-tokens 25000

The precision is bfloat16 if the device has instructions for it, else float32.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pandas as pd
import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.flops import SIZES
from benchmarks.programs import Ours, add_data_options, fastest_precision
from benchmarks.worker import task_of
from pipeline.workflow.stage import require, run
from transformer.files import Mistake

WARM = 3  # updates before the measured ones
ROWS = 20  # operations that are shown


def profiled(program: Ours, updates: int) -> list[dict]:
    """A row per operation, the longest first: milliseconds and calls an update, share of the time of all operations.

    On a GPU its computing time, on a CPU the time in the operation itself.
    """
    for step in range(1, WARM + 1):
        program.update(step)
    on_gpu = program.task.device.type == "cuda"
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=kinds) as seen:
        for step in range(WARM + 1, WARM + updates + 1):
            program.update(step)
    events = [event for event in seen.key_averages() if event.device_type.name == "CPU"]  # not their kernels once more
    spent = {event: event.self_device_time_total if on_gpu else event.self_cpu_time_total for event in events}  # µs
    rows = [
        {
            "operation": event.key,
            "share": time / sum(spent.values()),
            "ms": time / 1000 / updates,
            "calls": event.count / updates,
        }
        for event, time in spent.items()
    ]
    return sorted(rows, key=lambda row: -row["share"])[:ROWS]


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add_data_options(parser)
    add("--size", choices=[*SIZES], default="tiny")
    add("--updates", type=int, default=20, metavar="N")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--json", type=Path, metavar="FILE", help="write the rows")
    return parser.parse_args()


def main() -> None:
    asked = options()
    require(asked.ids, asked.vocab)
    if asked.device == "cuda" and not torch.cuda.is_available():
        raise Mistake("--device cuda: torch finds no GPU; use --device cpu")
    precision = fastest_precision(torch.device(asked.device))
    rows = profiled(Ours(task_of(vars(asked) | {"precision": precision})), asked.updates)
    print(f"{asked.size}, {precision}, {asked.batch_tokens:,} tokens, {asked.device}")
    print(pd.DataFrame(rows).to_string(index=False))
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run(main)
