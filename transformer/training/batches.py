"""The order in which training sees pairs.

The list of global batches is a function of (data, seed, epoch); micro-batches are cut from a global batch by
device_tokens alone. Neither knows how many devices there are.
"""

from __future__ import annotations

import numpy as np

from transformer.text.pairs import Pairs


def cut(longest: np.ndarray, tokens: int) -> list[slice]:
    """Cut pairs, sorted by their longer side, into runs of at most `tokens` = pairs x longest side, padding included.

    A pair longer than `tokens` makes a run of its own.
    """
    runs, start = [], 0
    while start < len(longest):
        # pairs x longest side grows with the end of the run, so the last end that fits is found by bisection
        low, high = start + 1, min(len(longest), start + max(1, tokens // max(1, int(longest[start]))))
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if (middle - start) * int(longest[middle - 1]) <= tokens else (low, middle - 1)
        runs.append(slice(start, low))
        start = low
    return runs


def global_batches(pairs: Pairs, seed: int, epoch: int, batch_tokens: int) -> list[np.ndarray]:
    """The updates of one epoch, in order: row numbers of each, sorted by length within. Every pair occurs once.

    Pairs of like length go together; which of them, and the order of the batches, change with the epoch. The number of
    batches does not: it depends on the lengths alone.
    """
    chance = np.random.default_rng([seed, epoch])
    order = np.lexsort((chance.random(len(pairs)), pairs.source_lengths, pairs.longest))
    batches = [order[run] for run in cut(pairs.longest[order], batch_tokens)]
    return [batches[place] for place in chance.permutation(len(batches))]


def micro_batches(pairs: Pairs, rows: np.ndarray, device_tokens: int) -> list[np.ndarray]:
    """Pieces of a global batch that one device computes at a time."""
    return [rows[run] for run in cut(pairs.longest[rows], device_tokens)]


class Batches:
    """Global batch of every update, counted from 1, epoch after epoch."""

    def __init__(self, pairs: Pairs, seed: int, batch_tokens: int):
        self.pairs, self.seed, self.batch_tokens = pairs, seed, batch_tokens
        self._epoch, self._batches = -1, []

    def __getitem__(self, step: int) -> np.ndarray:
        """Row numbers of update `step`."""
        if self._epoch < 0:
            self._load(0)
        epoch, place = divmod(step - 1, len(self._batches))
        if epoch != self._epoch:
            self._load(epoch)
        return self._batches[place]

    def _load(self, epoch: int) -> None:
        self._epoch, self._batches = epoch, global_batches(self.pairs, self.seed, epoch, self.batch_tokens)
