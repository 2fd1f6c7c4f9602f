"""Time per target token of this project's trainer with 10,000, 100,000 and 1,000,000 pairs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.processes import Worker, alternate, workers
from benchmarks.table import rate, text_table

PAIRS = (10_000, 100_000, 1_000_000)
COLUMNS = {
    "pairs": ("pairs", "{:,}"),
    "tokens_per_second": ("target tokens/s", "{:,.0f}"),
    "update_microseconds": ("updates, µs/token", "{:.3f}"),
    "list_microseconds": ("batch list, µs/token", "{:.3f}"),
    "list_seconds": ("batch list, s/epoch", "{:.3f}"),
    "microseconds_per_token": ("together, µs/token", "{:.3f}"),
    "memory_mb": ("peak memory, MB", "{:,.0f}"),
}


@contextmanager
def tiled(ids: Path, pairs: int) -> Iterator[Path]:
    """Yield a temporary folder with the training pairs of `ids`, repeated until there are `pairs` of them."""
    with tempfile.TemporaryDirectory() as name:
        for side in ("source", "target"):
            stem = f"train.{side}"
            flat, starts = (np.load(ids / f"{stem}.{part}.npy", mmap_mode="r") for part in ("ids", "starts"))
            lengths = np.resize(np.diff(starts), pairs)
            np.save(Path(name, f"{stem}.ids.npy"), np.resize(flat, int(lengths.sum())))
            np.save(Path(name, f"{stem}.starts.npy"), np.concatenate([[0], np.cumsum(lengths)]))
        np.save(Path(name, "train.lines.npy"), np.resize(np.load(ids / "train.lines.npy"), pairs))
        yield Path(name)


def scaling(setting: dict, size: str, rounds: int, seconds: float) -> list[dict]:
    """Measure this trainer with each number of PAIRS, taking turns. Print rows and largest ratios; return the rows."""
    with tiled_folders(Path(setting["ids"])) as folders:
        asked = setting | {"size": size, "program": "ours"}
        with workers([asked | {"ids": str(folder), "pairs": pairs} for pairs, folder in folders.items()]) as started:
            alternate(started, rounds, seconds)
            rows = [row_of(worker) for worker in started]
    print(text_table(rows, COLUMNS))
    for key, name in (("microseconds_per_token", "cost per token"), ("memory_mb", "peak memory")):
        values = [row[key] for row in rows]
        print(f"largest ratio, {name}: {max(values) / min(values):.3f}")
    return rows


@contextmanager
def tiled_folders(ids: Path) -> Iterator[dict[int, Path]]:
    """Yield a temporary folder for each number of PAIRS."""
    with tiled(ids, PAIRS[0]) as few, tiled(ids, PAIRS[1]) as more, tiled(ids, PAIRS[2]) as most:
        yield dict(zip(PAIRS, (few, more, most), strict=True))


def row_of(worker: Worker) -> dict:
    """The row of a process: time per target token of updates, and of the batch list, made once per epoch."""
    epochs = [worker.ask("epoch", number=number) for number in range(1, 4)]
    list_seconds = median(epoch["seconds"] for epoch in epochs)
    list_share = list_seconds / epochs[0]["target_tokens"]
    update_share = 1 / rate(worker.rounds, "target_tokens")
    return {
        "pairs": worker.setting["pairs"],
        "tokens_per_second": 1 / (update_share + list_share),
        "update_microseconds": 1e6 * update_share,
        "list_microseconds": 1e6 * list_share,
        "list_seconds": list_seconds,
        "microseconds_per_token": 1e6 * (update_share + list_share),
        "memory_mb": worker.rounds[-1]["memory"] / 1e6,
    }
