"""Batches of training pairs and their order.

The list of global batches is a function of (data, seed, epoch). A global batch is split into micro-batches by
device_tokens. Both are independent of the number of devices.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from transformer.text.pairs import Pairs

SHARE_WITH_WORK = 0.9  # of the processes; above it `idle_remark` is silent


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


def padded_tokens(pairs: Pairs, parts: Sequence[np.ndarray]) -> list[int]:
    """The size of each part of a batch: pairs x longest side, padding included."""
    return [len(rows) * int(pairs.longest[rows].max(initial=0)) for rows in parts]


def deal(tokens: Sequence[int], processes: int) -> list[list[int]]:
    """Deal parts of these sizes to processes so that each computes about equally many tokens.

    Returns the numbers of the parts of each process, in order. The largest parts are dealt first, each to the process
    with the fewest tokens so far, of equal ones the first.
    """
    loads, dealt = [0] * processes, [[] for _ in range(processes)]
    for part in sorted(range(len(tokens)), key=lambda part: (-tokens[part], part)):
        process = loads.index(min(loads))
        dealt[process].append(part)
        loads[process] += tokens[part]
    return [sorted(parts) for parts in dealt]


class Batches:
    """The global batch of each update, counted from 1, through all epochs."""

    def __init__(self, pairs: Pairs, seed: int, batch_tokens: int):
        self.pairs, self.seed, self.batch_tokens = pairs, seed, batch_tokens
        self._epoch, self._batches = 0, global_batches(pairs, seed, 0, batch_tokens)

    def __getitem__(self, step: int) -> np.ndarray:
        """The numbers of the pairs of update `step`."""
        epoch, number = divmod(step - 1, len(self._batches))
        if epoch != self._epoch:
            self._epoch, self._batches = epoch, global_batches(self.pairs, self.seed, epoch, self.batch_tokens)
        return self._batches[number]

    def share_with_work(self, processes: int, device_tokens: int, updates: int = 50) -> float:
        """The share of processes that get a micro-batch: the mean over the first updates of an epoch."""
        parts = [len(micro_batches(self.pairs, rows, device_tokens)) for rows in self._batches[:updates]]
        return sum(min(processes, count) for count in parts) / (processes * len(parts))


def idle_remark(batches: Batches, processes: int, device_tokens: int, max_length: int) -> str:
    """A remark if a tenth of the processes or more get nothing to compute; else "".

    It suggests the largest device_tokens that keeps over 90% of the processes busy, at most batch_tokens / processes,
    so that no process gets most of an update. max_length: device_tokens must be larger.
    """
    if processes == 1 or (share := batches.share_with_work(processes, device_tokens)) > SHARE_WITH_WORK:
        return ""
    longest, most = max_length + 1, batches.batch_tokens // processes
    fitting = range(most, longest - 1, -max(1, (most - longest) // 20))
    better = next((tokens for tokens in fitting if batches.share_with_work(processes, tokens) > SHARE_WITH_WORK), None)
    remedy = (
        f"With device_tokens={better} they would have work; dropout is then drawn in other parts, so it is another "
        "experiment."
        if better
        else "Use fewer processes, or raise batch_tokens, which is another experiment."
    )
    return (
        f"On average {processes * (1 - share):.1f} of {processes} processes have nothing to compute in an update: "
        f"device_tokens={device_tokens} cuts an update of batch_tokens={batches.batch_tokens} into too few parts. "
        f"{remedy}"
    )
