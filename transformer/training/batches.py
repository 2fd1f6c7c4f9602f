"""Batches of training pairs and their order.

The list of global batches is a function of (data, seed, epoch). A global batch is split into micro-batches by
device_tokens. Both are independent of the number of devices.
"""

from __future__ import annotations

import numpy as np

from transformer.text.pairs import Pairs


def split_by_tokens(lengths: np.ndarray, tokens: int) -> list[slice]:
    """Split pairs into consecutive slices of at most `tokens` = pairs x length of the longest, padding included.

    lengths: of the longer side of each pair, in ascending order. A pair longer than `tokens` gets a slice of its own.
    """
    slices, start = [], 0
    while start < len(lengths):
        # pairs x longest grows with the end of the slice, so bisection finds the last end that fits
        low, high = start + 1, min(len(lengths), start + max(1, tokens // max(1, int(lengths[start]))))
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if (middle - start) * int(lengths[middle - 1]) <= tokens else (low, middle - 1)
        slices.append(slice(start, low))
        start = low
    return slices


def global_batches(pairs: Pairs, seed: int, epoch: int, batch_tokens: int) -> list[np.ndarray]:
    """The global batches of one epoch, in order: the numbers of their pairs, sorted by length. Each pair occurs once.

    A batch holds pairs of similar length. Which of them, and the order of the batches, change with the epoch. The
    number of batches depends on the lengths only, so it is the same in every epoch.
    """
    random = np.random.default_rng([seed, epoch])
    order = np.lexsort((random.random(len(pairs)), pairs.source_lengths, pairs.longest))
    batches = [order[rows] for rows in split_by_tokens(pairs.longest[order], batch_tokens)]
    return [batches[number] for number in random.permutation(len(batches))]


def micro_batches(pairs: Pairs, rows: np.ndarray, device_tokens: int) -> list[np.ndarray]:
    """The parts of a global batch that a device computes one at a time; rows: the numbers of its pairs."""
    return [rows[part] for part in split_by_tokens(pairs.longest[rows], device_tokens)]


class Batches:
    """The global batch of each update, counted from 1, through all epochs."""

    def __init__(self, pairs: Pairs, seed: int, batch_tokens: int):
        self.pairs, self.seed, self.batch_tokens = pairs, seed, batch_tokens
        self._epoch, self._batches = -1, []

    def __getitem__(self, step: int) -> np.ndarray:
        """The numbers of the pairs of update `step`."""
        if self._epoch < 0:
            self._load(0)
        epoch, number = divmod(step - 1, len(self._batches))
        if epoch != self._epoch:
            self._load(epoch)
        return self._batches[number]

    def _load(self, epoch: int) -> None:
        self._epoch, self._batches = epoch, global_batches(self.pairs, self.seed, epoch, self.batch_tokens)
