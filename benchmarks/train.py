"""Training speed of this project and of other programs, measured together on the same pairs.

All programs get the same pairs, ids, sizes, dropout and label smoothing. Each makes batches by its own rule and
computes at a precision that it offers. Each has its own process. The processes take turns, round after round; results
are medians of rounds. A round is whole updates: batch to tensors, forward, loss, backward, clipping and Adam. Making
the list of an epoch's batches is not timed. The data loaders of the others are not called, which favours them.

    python -m benchmarks.train --size tiny --rounds 5 --json speed.json
"""

from __future__ import annotations

import argparse
import json
from importlib.util import find_spec
from pathlib import Path

import torch

from benchmarks.flops import SIZES
from benchmarks.processes import alternate, workers
from benchmarks.scaling import scaling
from benchmarks.table import draw, marked, rate, row_of, summary, text_table, with_ratios
from pipeline.stage import require, run
from transformer.model.cpu import multiplies_bfloat16

BOTH = ("float32", "bfloat16")
PROGRAMS = ("ours", "compiled", "torch", "joeynmt", "opennmt", "annotated")
# the precisions that a program offers; for the other programs they depend on the device
OFFERED = {"ours": BOTH, "compiled": BOTH, "torch": BOTH, "annotated": ("float32",)}
PEERS_OFFER = {"cpu": ("float32",), "cuda": ("float32", "float16")}
MODULES = {"joeynmt": "joeynmt", "opennmt": "onmt"}  # what must be installed for a program


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--ids", type=Path, default=Path("data/ids"), metavar="PATH", help="id arrays as the stage encode writes them")
    add("--vocab", type=Path, default=Path("data/vocab.txt"), metavar="PATH", help="their vocabulary")
    add("--size", choices=(*SIZES, "both"), default="tiny")
    add("--precision", choices=(*BOTH, "float16", "all"), default="all", help="all: each that the program offers")
    add("--force-autocast", action="store_true", help="also measure other programs in bfloat16, not offered by them")
    add("--programs", metavar="A,B", help=f"some of {', '.join(PROGRAMS)}; default: all that can be run")
    add("--annotated", type=Path, metavar="PATH", help="your copy of the_annotated_transformer.py (2022)")
    add("--batch-tokens", type=int, default=4096, metavar="N", help="sentences x longest side of an update")
    add("--batches", choices=("own", "shared"), default="own", help="each program's own, or this project's for all")
    add("--rounds", type=int, default=5, metavar="N")
    add("--seconds", type=float, default=10.0, metavar="S", help="length of a round; its last update is finished")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--json", type=Path, metavar="FILE", help="write the rows")
    add("--plot", type=Path, metavar="FILE", help="draw the rows, as .svg or .html")
    add("--scaling", action="store_true", help="cost per token with 10,000 to 1,000,000 pairs, instead of the above")
    return parser.parse_args()


def chosen(given: argparse.Namespace) -> list[str]:
    """The programs to measure. Raises ValueError if --programs names one that is unknown or cannot be run."""
    missing = {
        name: f"{name} is not installed; run `make bench-setup`"
        for name, module in MODULES.items()
        if find_spec(module) is None
    }
    if given.device == "cpu":
        missing["compiled"] = "compiled needs --device cuda: `compile: true` has no effect on a CPU"
    if given.annotated is None:
        missing["annotated"] = "annotated needs --annotated PATH, your copy of the_annotated_transformer.py"
    if given.programs is None:
        return [name for name in PROGRAMS if name not in missing]
    names = given.programs.split(",")
    for name in names:
        if name not in PROGRAMS:
            raise ValueError(f"--programs: {name!r} is not one of {', '.join(PROGRAMS)}")
        if name in missing:
            raise ValueError(missing[name])
    return names


def common(given: argparse.Namespace) -> dict:
    """The part of the setting that all processes share."""
    script = given.annotated and str(given.annotated)
    return {
        "ids": str(given.ids),
        "vocab": str(given.vocab),
        "batch_tokens": given.batch_tokens,
        "batches": given.batches,
        "device": given.device,
        "annotated": script,
    }


def precisions(given: argparse.Namespace, program: str) -> dict[str, bool]:
    """The precisions at which to measure a program -> whether the benchmark forces the precision on it."""
    found = dict.fromkeys(OFFERED.get(program, PEERS_OFFER[given.device]), False)
    if given.force_autocast and program in MODULES:
        found["bfloat16"] = True
    if not multiplies_bfloat16(torch.device(given.device)):
        found.pop("bfloat16", None)
    return {name: forced for name, forced in found.items() if given.precision in (name, "all")}


def measure(given: argparse.Namespace, size: str, names: list[str]) -> list[dict]:
    """The rows of one size: every program at each of its precisions, with its share of the matrix rate."""
    runs = [(name, *run) for name in names for run in precisions(given, name).items()]
    runs += [("matrices", precision, False) for precision in sorted({precision for _, precision, _ in runs})]
    settings = [
        common(given) | {"size": size, "program": name, "precision": precision, "forced": forced}
        for name, precision, forced in runs
    ]
    with workers(settings) as started:
        alternate(started, given.rounds, given.seconds)
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
    given = options()
    require(given.ids, given.vocab, *([given.annotated] if given.annotated else []))
    if given.plot and given.plot.suffix not in (".svg", ".html"):
        raise ValueError(f"--plot {given.plot}: the name must end in .svg or .html")
    if given.precision in ("bfloat16", "all") and not multiplies_bfloat16(torch.device(given.device)):
        reason = "this machine has no instructions for bfloat16"
        if given.precision == "bfloat16":
            raise ValueError(f"--precision bfloat16: {reason}; use float32")
        print(f"bfloat16 is left out: {reason}")
    if given.scaling:
        offered = list(precisions(given, "ours"))
        if not offered:
            raise ValueError(f"--scaling --precision {given.precision}: use {' or '.join(BOTH)}")
        size = "tiny" if given.size == "both" else given.size
        rows = scaling(common(given) | {"precision": offered[-1]}, size, given.rounds, given.seconds)
    else:
        names = chosen(given)
        sizes = ["tiny", "base"] if given.size == "both" else [given.size]
        rows = with_ratios([row for size in sizes for row in measure(given, size, names)])
        if not rows:
            raise ValueError("no program could be measured; set TRACEBACK=1 to see their errors")
        print(text_table(marked(rows)), *summary(rows), sep="\n")
        for rate_of in sorted({(row["size"], row["precision"], row["matrix_rate_gflops"]) for row in rows}):
            print("matrix rate of {}, {}: {:,.0f} GFLOP/s".format(*rate_of))
        if given.plot:
            draw(rows, given.plot)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run(main)
