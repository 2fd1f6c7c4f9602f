"""Training speed of this project and of torch's own layers, measured together on the same batches.

Both get the same pairs, batches, sizes, dropout and label smoothing. Each has its own process. The processes take
turns, round after round; results are medians of rounds. A round is whole updates: batch to tensors, forward, loss,
backward, clipping and Adam. Making the list of an epoch's batches is not timed.

    python -m benchmarks.train --size tiny --rounds 5 --json speed.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from benchmarks.processes import LOG, alternate, workers
from benchmarks.programs import SIZES, add_data_options
from benchmarks.table import row_of, summary, text_table, with_ratios
from benchmarks.worker import KINDS
from pipeline.workflow.stage import require, run
from transformer.files import Mistake
from transformer.model.cpu import multiplies_bfloat16

PRECISIONS = ("float32", "bfloat16")


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add_data_options(parser)
    add("--size", choices=(*SIZES, "both"), default="tiny")
    add("--precision", choices=(*PRECISIONS, "all"), default="all")
    add("--programs", metavar="A,B", help=f"some of {', '.join(KINDS)}; default: all that can be run")
    add("--rounds", type=int, default=5, metavar="N")
    add("--seconds", type=float, default=10.0, metavar="S", help="length of a round; its last update is finished")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--json", type=Path, metavar="FILE", help="write the rows")
    return parser.parse_args()


def chosen(asked: argparse.Namespace) -> list[str]:
    """The programs to measure. Raises Mistake if --programs names one that is unknown or cannot be run."""
    cannot = ["compiled"] if asked.device == "cpu" else []
    if asked.programs is None:
        return [name for name in KINDS if name not in cannot]
    names = asked.programs.split(",")
    for name in names:
        if name not in KINDS:
            raise Mistake(f"--programs: {name!r} is not one of {', '.join(KINDS)}")
        if name in cannot:
            raise Mistake("compiled needs --device cuda: `compile: true` has no effect on a CPU")
    return names


def precisions(asked: argparse.Namespace) -> list[str]:
    """The precisions at which to measure: those asked for that the device computes fast with."""
    fast = multiplies_bfloat16(torch.device(asked.device))
    return [name for name in PRECISIONS if asked.precision in (name, "all") and (fast or name == "float32")]


def measure(asked: argparse.Namespace, size: str, names: list[str]) -> list[dict]:
    """The rows of one size: every program at each of its precisions."""
    pairs = [(name, precision) for name in names for precision in precisions(asked)]
    common = {"ids": str(asked.ids), "vocab": str(asked.vocab), "batch_tokens": asked.batch_tokens, "size": size}
    settings = [common | {"device": asked.device, "program": name, "precision": precision} for name, precision in pairs]
    with workers(settings) as started:
        alternate(started, asked.rounds, asked.seconds)
        return [row_of(worker.setting, worker.rounds) for worker in started]


def main() -> None:
    asked = options()
    require(asked.ids, asked.vocab)
    if asked.precision in ("bfloat16", "all") and not multiplies_bfloat16(torch.device(asked.device)):
        reason = "this machine has no instructions for bfloat16"
        if asked.precision == "bfloat16":
            raise Mistake(f"--precision bfloat16: {reason}; use float32")
        print(f"bfloat16 is left out: {reason}")
    names = chosen(asked)
    sizes = ["tiny", "base"] if asked.size == "both" else [asked.size]
    rows = with_ratios([row for size in sizes for row in measure(asked, size, names)])
    if not rows:
        raise Mistake(f"no program could be measured; {LOG} has their errors")
    print(text_table(rows), *summary(rows), sep="\n")
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run(main)
