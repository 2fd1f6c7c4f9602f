"""Pairs of id sequences on disk, and the order in which training sees them.

The list of global batches is a function of (data, seed, epoch); micro-batches are cut from a global batch by
device_tokens alone. Neither knows how many devices there are.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from transformer.text import BOS, PAD


class Sequences:
    """Variable-length id sequences in two flat arrays, memory-mapped: all ids end to end, and where each one starts."""

    def __init__(self, ids: np.ndarray, starts: np.ndarray):
        self.ids, self.starts = ids, starts

    @classmethod
    def load(cls, stem: Path) -> Sequences:
        """Memory-map <stem>.ids.npy (int32) and <stem>.starts.npy (int64, one more than there are sequences)."""
        return cls(
            np.load(f"{stem}.ids.npy", mmap_mode="r", allow_pickle=False),
            np.load(f"{stem}.starts.npy", mmap_mode="r", allow_pickle=False),
        )

    @staticmethod
    def save(stem: Path, sequences: Iterable[list[int]]) -> None:
        """Write what `load` reads."""
        ids, starts = array("i"), array("q", [0])
        for sequence in sequences:
            ids.extend(sequence)
            starts.append(len(ids))
        np.save(f"{stem}.ids.npy", np.asarray(ids, dtype=np.int32), allow_pickle=False)
        np.save(f"{stem}.starts.npy", np.asarray(starts, dtype=np.int64), allow_pickle=False)

    @property
    def lengths(self) -> np.ndarray:
        """Subwords of each sequence, </s> included: (sequences,)."""
        return np.diff(self.starts)

    def padded(self, rows: np.ndarray) -> np.ndarray:
        """The sequences `rows`, padded to the longest of them: (len(rows), longest)."""
        starts, ends = np.asarray(self.starts[rows]), np.asarray(self.starts[rows + 1])
        places = starts[:, None] + np.arange((ends - starts).max(initial=0))
        return np.where(places < ends[:, None], self.ids[np.minimum(places, len(self.ids) - 1)], PAD)


class Pairs:
    """Parallel sequences. Source and target each end in </s>."""

    def __init__(self, source: Sequences, target: Sequences):
        self.source, self.target = source, target
        self.source_lengths, self.target_lengths = source.lengths, target.lengths
        self.longest = np.maximum(self.source_lengths, self.target_lengths)  # the longer side of each pair

    @classmethod
    def load(cls, folder: Path, split: str) -> Pairs:
        """Memory-map one split, as the stage `encode` writes it."""
        return cls(Sequences.load(folder / f"{split}.source"), Sequences.load(folder / f"{split}.target"))

    def __len__(self) -> int:
        return len(self.longest)

    def batch(self, rows: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        """Source (B, S), target input (B, T) that opens with <s>, and target output (B, T) that ends in </s>."""
        source, output = self.source.padded(rows), self.target.padded(rows)
        input = np.concatenate([np.full((len(rows), 1), BOS, output.dtype), output[:, :-1]], axis=1)
        input[output == PAD] = PAD
        return tuple(torch.from_numpy(part.astype(np.int64)) for part in (source, input, output))  # type: ignore


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
            low, high = (middle, high) if (middle - start) * longest[middle - 1] <= tokens else (low, middle - 1)
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
