"""Training speed of this project and of other programs, measured together on the same pairs.

All programs get the same pairs, ids, sizes, dropout and label smoothing. Each makes batches by its own rule and
computes at a precision that it offers. Each has its own process. The processes take turns, round after round; results
are medians of rounds. A round is whole updates: batch to tensors, forward, loss, backward, clipping and Adam. Making
the list of an epoch's batches is not timed. The data loaders of the other programs are not called, which favours them.

    python -m benchmarks.train --size tiny --rounds 5 --json speed.json
"""

from __future__ import annotations

import argparse
import json
from importlib.util import find_spec
from pathlib import Path

import torch

from benchmarks.flops import SIZES
from benchmarks.processes import LOG, alternate, workers
from benchmarks.programs import add_data_options
from benchmarks.table import rate, row_of, summary, text_table, with_ratios
from pipeline.workflow.stage import require, run
from transformer.files import Mistake
from transformer.model.cpu import multiplies_bfloat16

BOTH = ("float32", "bfloat16")
PROGRAMS = ("ours", "compiled", "torch", "joeynmt", "opennmt")
OFFERED = {"ours": BOTH, "compiled": BOTH, "torch": BOTH}  # precisions; those of the other programs: PEERS_OFFER
PEERS_OFFER = {"cpu": ("float32",), "cuda": ("float32", "float16")}
MODULES = {"joeynmt": "joeynmt", "opennmt": "onmt"}  # what must be installed for a program


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add_data_options(parser)
    add("--size", choices=(*SIZES, "both"), default="tiny")
    add("--precision", choices=(*BOTH, "float16", "all"), default="all", help="all: each that the program offers")
    add("--programs", metavar="A,B", help=f"some of {', '.join(PROGRAMS)}; default: all that can be run")
    add("--rounds", type=int, default=5, metavar="N")
    add("--seconds", type=float, default=10.0, metavar="S", help="length of a round; its last update is finished")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--json", type=Path, metavar="FILE", help="write the rows")
    return parser.parse_args()


def chosen(asked: argparse.Namespace) -> list[str]:
    """The programs to measure. Raises Mistake if --programs names one that is unknown or cannot be run."""
    missing = {
        name: f"{name} is not installed; run `make bench-setup`"
        for name, module in MODULES.items()
        if find_spec(module) is None
    }
    if asked.device == "cpu":
        missing["compiled"] = "compiled needs --device cuda: `compile: true` has no effect on a CPU"
    if asked.programs is None:
        return [name for name in PROGRAMS if name not in missing]
    names = asked.programs.split(",")
    for name in names:
        if name not in PROGRAMS:
            raise Mistake(f"--programs: {name!r} is not one of {', '.join(PROGRAMS)}")
        if name in missing:
            raise Mistake(missing[name])
    return names


def precisions(asked: argparse.Namespace, program: str) -> list[str]:
    """The precisions at which to measure a program: those that it offers and the device computes fast with."""
    fast = multiplies_bfloat16(torch.device(asked.device))
    offered = OFFERED.get(program) or PEERS_OFFER[asked.device]
    return [name for name in offered if asked.precision in (name, "all") and (fast or name != "bfloat16")]


def measure(asked: argparse.Namespace, size: str, names: list[str]) -> list[dict]:
    """The rows of one size: every program at each of its precisions, with its share of the matrix rate."""
    pairs = [(name, precision) for name in names for precision in precisions(asked, name)]
    pairs += [("matrices", precision) for precision in sorted({precision for _, precision in pairs})]
    common = {"ids": str(asked.ids), "vocab": str(asked.vocab), "batch_tokens": asked.batch_tokens, "size": size}
    settings = [common | {"device": asked.device, "program": name, "precision": precision} for name, precision in pairs]
    with workers(settings) as started:
        alternate(started, asked.rounds, asked.seconds)
        rates = {
            worker.setting["precision"]: rate(worker.rounds, "flop")
            for worker in started
            if worker.setting["program"] == "matrices"
        }
        return [
            row_of(worker.setting, worker.rounds, rates[worker.setting["precision"]])
            for worker in started
            if worker.setting["program"] != "matrices"
        ]


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
    for rate_of in sorted({(row["size"], row["precision"], row["matrix_rate_gflops"]) for row in rows}):
        print("matrix rate of {}, {}: {:,.0f} GFLOP/s".format(*rate_of))
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run(main)
