"""Training speed of this project and of torch's own layers, in one process, measured in turns on the same batches.

All get the same pairs, batches, sizes, dropout and label smoothing. Results are medians of rounds. A round is whole
updates: batch to tensors, forward, loss, backward, clipping and Adam.

    python -m benchmarks.train --size tiny --rounds 5 --json speed.json
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from pathlib import Path
from statistics import median

import torch

from benchmarks.programs import SIZES, Task, Update, ours, synchronise, torch_layers
from benchmarks.table import text_table
from pipeline.workflow.stage import require, run
from transformer.model.cpu import multiplies_bfloat16
from transformer.text.pairs import Pairs
from transformer.text.vocabulary import Vocabulary
from transformer.training.config import Precision
from transformer.training.distributed import prepare_process

PROGRAMS = {"ours": ours, "compiled": partial(ours, compile=True), "torch": torch_layers}
COLUMNS = {
    "program": "program",
    "size": "size",
    "precision": "precision",
    "tokens_per_second": "target tokens/s",
    "ratio": "ours is x times",
}


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--ids", type=Path, default=Path("data/ids"), metavar="PATH", help="id arrays as the stage encode writes them")
    add("--vocab", type=Path, default=Path("data/vocab.txt"), metavar="PATH", help="their vocabulary")
    add("--batch-tokens", type=int, default=4096, metavar="N", help="sentences x longest side of an update")
    add("--size", nargs="+", choices=tuple(SIZES), default=["tiny"])
    add("--programs", nargs="+", choices=tuple(PROGRAMS), default=["ours", "torch"], help="compiled: on a GPU")
    add("--rounds", type=int, default=5, metavar="N")
    add("--seconds", type=float, default=10.0, metavar="S", help="length of a round; its last update is finished")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--json", type=Path, metavar="FILE", help="write the rows")
    return parser.parse_args()


def tokens_per_second(update: Update, task: Task, first: int, seconds: float) -> float:
    """Target tokens that updates learn in a second. Update `first`, which allocates memory, is not timed."""
    batches, tokens, step = task.batches, 0, first
    update(first)
    synchronise(task.device)
    start = time.perf_counter()
    while not tokens or time.perf_counter() - start < seconds:
        step += 1
        update(step)
        tokens += int(task.pairs.target_lengths[batches[step]].sum())
    synchronise(task.device)  # not after each update: a training does not wait for the device either
    return tokens / (time.perf_counter() - start)


def measure(asked: argparse.Namespace, size: str) -> list[dict]:
    """A row of one size for each program at each precision that the device computes fast with."""
    device = torch.device(asked.device)
    data = len(Vocabulary.load(asked.vocab)), Pairs.load(asked.ids, "train"), asked.batch_tokens
    precisions: tuple[Precision, ...] = ("float32", "bfloat16") if multiplies_bfloat16(device) else ("float32",)
    names: list[tuple[str, Precision]] = [(each, precision) for each in asked.programs for precision in precisions]
    tasks = [Task(SIZES[size], *data, precision, device) for _, precision in names]
    updates = [PROGRAMS[program](task) for (program, _), task in zip(names, tasks, strict=True)]
    rounds: list[list[float]] = [[] for _ in names]
    for number in range(asked.rounds):
        for done, update, task in zip(rounds, updates, tasks, strict=True):
            done.append(tokens_per_second(update, task, 1 + 100_000 * number, asked.seconds))
    speed = [median(done) for done in rounds]
    best = max((rate for rate, (program, _) in zip(speed, names, strict=True) if program == "ours"), default=None)
    return [
        {
            "program": program,
            "size": size,
            "precision": precision,
            "device": asked.device,
            "tokens_per_second": rate,
            "ratio": best and best / rate,
            "rounds": done,
        }
        for (program, precision), rate, done in zip(names, speed, rounds, strict=True)
    ]


def main() -> None:
    asked = options()
    prepare_process()
    require(asked.ids, asked.vocab)
    rows = [row for size in asked.size for row in measure(asked, size)]
    print(text_table(rows, COLUMNS))
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run(main)
