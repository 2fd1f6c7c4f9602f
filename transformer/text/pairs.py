"""Pairs of id sequences on disk, mapped into memory as they are read."""

from __future__ import annotations

import mmap
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from transformer.text.vocabulary import BOS, EOS, PAD

Pair = tuple[list[int], list[int]]  # source and target ids
MADV_DONTNEED = getattr(mmap, "MADV_DONTNEED", None)  # Windows has none


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

    def __iter__(self) -> Iterator[np.ndarray]:
        """The sequences, one after another."""
        return (self.ids[start:end] for start, end in pairwise(self.starts))

    @property
    def lengths(self) -> np.ndarray:
        """Subwords of each sequence, </s> included: (sequences,), int32."""
        lengths = np.diff(self.starts).astype(np.int32)
        self._let_go()
        return lengths

    def padded(self, rows: np.ndarray) -> np.ndarray:
        """The sequences `rows`, padded to the longest of them: (len(rows), longest)."""
        starts, ends = np.asarray(self.starts[rows]), np.asarray(self.starts[rows + 1])
        places = starts[:, None] + np.arange((ends - starts).max(initial=0))
        padded = np.where(places < ends[:, None], self.ids[np.minimum(places, len(self.ids) - 1)], PAD)
        self._let_go()
        return padded

    def _let_go(self) -> None:
        """Unmap what was read; it stays in the system's cache. Else this process holds the whole corpus in the end."""
        for file in (self.ids.base, self.starts.base):
            if MADV_DONTNEED is not None and isinstance(file, mmap.mmap):
                file.madvise(MADV_DONTNEED)


class Pairs:
    """Parallel sequences. Source and target each end in </s>; lines (pairs,): where each stands in data/raw, from 1."""

    def __init__(self, source: Sequences, target: Sequences, lines: np.ndarray):
        self.source, self.target, self.lines = source, target, lines
        self.source_lengths, self.target_lengths = source.lengths, target.lengths
        self.longest = np.maximum(self.source_lengths, self.target_lengths)  # the longer side of each pair

    @classmethod
    def load(cls, folder: Path, split: str) -> Pairs:
        """Memory-map one split, as the stage `encode` writes it."""
        source, target = (Sequences.load(folder / f"{split}.{side}") for side in ("source", "target"))
        return cls(source, target, np.load(folder / f"{split}.lines.npy", mmap_mode="r", allow_pickle=False))

    @staticmethod
    def save(folder: Path, split: str, pairs: Sequence[Pair], lines: Sequence[int]) -> None:
        """Write what `load` reads; </s> is added to each side."""
        for number, side in enumerate(("source", "target")):
            Sequences.save(folder / f"{split}.{side}", ([*pair[number], EOS] for pair in pairs))
        np.save(folder / f"{split}.lines.npy", np.asarray(lines, dtype=np.int64), allow_pickle=False)

    def refuse_longer(self, split: str, device_tokens: int) -> None:
        """Raise ValueError, naming the pair, if one does not fit into device_tokens."""
        row = int(np.argmax(self.longest))
        if self.longest[row] > device_tokens:
            raise ValueError(
                f"{split} line {self.lines[row]} has {self.longest[row]} subwords, </s> included, and device_tokens="
                f"{device_tokens} cannot hold it; raise device_tokens, or shorten or remove that line"
            )

    def __len__(self) -> int:
        return len(self.longest)

    def backwards(self) -> Pairs:
        """The same pairs from target to source."""
        return Pairs(self.target, self.source, self.lines)

    def batch(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Source (B, S), target input (B, T) that opens with <s>; and where in B * T a subword is to be predicted, and
        which, </s> at the end: places (tokens,) and targets (tokens,)."""
        source, output = self.source.padded(rows), self.target.padded(rows)
        input = np.concatenate([np.full((len(rows), 1), BOS, output.dtype), output[:, :-1]], axis=1)
        input[output == PAD] = PAD
        places = np.flatnonzero(output != PAD)
        wide = np.int64  # torch has indices so
        return source.astype(wide), input.astype(wide), places.astype(wide), output.reshape(-1)[places].astype(wide)
