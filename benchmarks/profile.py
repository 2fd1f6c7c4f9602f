"""The time of an update of this project's trainer by operation, measured by torch's profiler.

    python -m benchmarks.profile --size base
    python -m benchmarks.profile --size base --device cuda --batch-tokens 25000

The precision is bfloat16 if the device has instructions for it, else float32.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.flops import SIZES
from benchmarks.programs import Ours, Program, add_data_options, fastest_precision, synchronise
from benchmarks.table import text_table
from benchmarks.worker import task_of
from pipeline.workflow.stage import require, run
from transformer.files import Mistake

WARM = 3  # updates before the measured ones
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")  # and all operations of oneDNN
REST = "(between them)"  # a GPU waits; a CPU runs Python, NumPy (batches) or the profiler
COLUMNS = {
    "operation": ("operation", "{}"),
    "share": ("share of the time", "{:.1%}"),
    "milliseconds": ("ms an update", "{:,.2f}"),
    "calls": ("calls an update", "{:,.0f}"),
}


def is_product(operation: str) -> bool:
    """Whether an operation multiplies matrices. Fused attention is not counted."""
    return operation.rpartition("::")[2] in PRODUCTS or "mkldnn" in operation


def seconds_of(program: Program, updates: int) -> float:
    """Mean seconds of an update, over `updates` updates."""
    synchronise(program.task.device)
    start = time.perf_counter()
    for step in range(WARM + 1, WARM + updates + 1):
        program.update(step)
    synchronise(program.task.device)
    return (time.perf_counter() - start) / updates


def profiled(program: Program, updates: int) -> list[dict]:
    """A row per operation, the longest first, then a row for the rest of an update.

    On a GPU: its computing time, as a share of updates without the profiler, because the profiler slows the host.
    On a CPU: the time in the operation itself, as a share of the same updates.
    """
    for step in range(1, WARM + 1):
        program.update(step)
    on_gpu = program.task.device.type == "cuda"
    plain = seconds_of(program, updates) if on_gpu else 0.0
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=kinds) as seen:
        slowed = seconds_of(program, updates)
    update, rows = 1000 * (plain or slowed), []  # milliseconds
    for event in seen.key_averages():
        spent = event.self_device_time_total if on_gpu else event.self_cpu_time_total  # µs
        if event.device_type.name == "CPU" and spent:  # a kernel's time is counted for the operation that started it
            share, calls = spent / 1000 / updates / update, event.count / updates
            rows.append({"operation": event.key, "share": share, "milliseconds": share * update, "calls": calls})
    left = 1 - sum(row["share"] for row in rows)
    rows.sort(key=lambda row: -row["share"])
    return [*rows, {"operation": REST, "share": left, "milliseconds": left * update, "calls": None}]


def condensed(rows: list[dict], least: float) -> tuple[list[dict], str]:
    """The rows with a share of at least `least`, the rest added up in a row, and a line about all of them."""
    *operations, rest = rows
    shown = [row for row in operations if row["share"] >= least]
    if few := [row for row in operations if row["share"] < least]:
        sums = {name: sum(row[name] for row in few) for name in ("share", "milliseconds", "calls")}
        shown.append({"operation": f"({len(few)} others)", **sums})
    products = sum(row["share"] for row in rows if is_product(row["operation"]))
    update = sum(row["milliseconds"] for row in rows)
    return [*shown, rest], f"an update takes {update:,.1f} ms, {products:.1%} of it in products of matrices"


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add_data_options(parser)
    add("--size", choices=[*SIZES], default="tiny")
    add("--updates", type=int, default=20, metavar="N")
    add("--least", type=float, default=0.01, metavar="SHARE", help="smallest share of the time with a line of its own")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--precision", choices=("float32", "bfloat16"), help="default: bfloat16 where the device has it")
    add("--json", type=Path, metavar="FILE", help="write the rows")
    return parser.parse_args()


def main() -> None:
    asked = options()
    require(asked.ids, asked.vocab)
    if asked.device == "cuda" and not torch.cuda.is_available():
        raise Mistake("--device cuda: torch finds no GPU; use --device cpu")
    if asked.updates < 1:
        raise Mistake(f"--updates {asked.updates}: must be 1 or more")
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or the profiler prints a line when it starts and when it stops
    precision = asked.precision or fastest_precision(torch.device(asked.device))
    task = task_of(vars(asked) | {"precision": precision})
    rows, line = condensed(profiled(Ours(task), asked.updates), asked.least)
    print(text_table(rows, COLUMNS))
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print(f"{asked.size}, {precision}, {asked.batch_tokens:,} tokens, {asked.device}: {line}")


if __name__ == "__main__":
    run(main)
