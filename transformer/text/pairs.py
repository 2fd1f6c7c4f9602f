"""Ids on disk: pairs of id sequences in flat arrays, memory-mapped, and the batches that training reads of them."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from transformer.files import Mistake, UnreadableInput, Untrainable, chunks, position_of, read_json
from transformer.text.array_file import ArrayFile
from transformer.text.vocabulary import BOS, EOS, PAD

IdPair = tuple[Sequence[int], Sequence[int], int]  # source and target ids, without </s>, and the line of the pair
MADV_DONTNEED = getattr(mmap, "MADV_DONTNEED", None)  # absent on Windows
PAIRS_AT_ONCE = 10_000  # of pairs that come one by one


class IdBlock(NamedTuple):
    """Some sequences of ids in flat arrays, each sequence with </s> at its end."""

    ids: np.ndarray  # of all sequences, one after another
    lengths: np.ndarray  # of each sequence, </s> included

    @classmethod
    def pack(cls, sequences: Sequence[Sequence[int]], dtype: type[np.integer]) -> IdBlock:
        """Sequences without </s> to their block."""
        flat = [number for ids in sequences for number in (*ids, EOS)]
        return cls(np.array(flat, dtype), np.array([len(ids) + 1 for ids in sequences], np.int64))


class PairBlock(NamedTuple):
    """Some pairs: their sources, their targets, and the line of each."""

    source: IdBlock
    target: IdBlock
    lines: np.ndarray


class SequencesFile:
    """The two files of Sequences, written block by block. They are closed with `stack`."""

    def __init__(self, stack: ExitStack, stem: Path, dtype: type[np.integer]):
        self._ids = stack.enter_context(ArrayFile(Path(f"{stem}.ids.npy"), dtype))
        self._starts = stack.enter_context(ArrayFile(Path(f"{stem}.starts.npy"), np.int64))
        self._end = 0
        self._starts.add(np.zeros(1, np.int64))

    def add(self, block: IdBlock) -> None:
        """Append the sequences of a block."""
        self._ids.add(block.ids)
        self._starts.add(self._end + np.cumsum(block.lengths))
        self._end += len(block.ids)


def load_array(path: Path) -> np.ndarray:
    """Memory-map a .npy file. Raises UnreadableInput for a file that is damaged."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise UnreadableInput(f"{path} is damaged ({error}).") from None


class Sequences:
    """Id sequences of different lengths in two flat arrays.

    ids: the ids of all sequences, one after another. starts: where each sequence starts in `ids`, then their length.
    """

    def __init__(self, ids: np.ndarray, starts: np.ndarray):
        self.ids, self.starts = ids, starts

    @classmethod
    def load(cls, stem: Path) -> Sequences:
        """Memory-map <stem>.ids.npy (uint16 or int32) and <stem>.starts.npy (int64, sequences + 1)."""
        return cls(load_array(Path(f"{stem}.ids.npy")), load_array(Path(f"{stem}.starts.npy")))

    @classmethod
    def unpack(cls, block: IdBlock) -> Sequences:
        """The sequences of a block."""
        return cls(block.ids, np.concatenate([[0], np.cumsum(block.lengths)]))

    def __iter__(self) -> Iterator[np.ndarray]:
        """The sequences, one after another."""
        return (self.ids[start:end] for start, end in pairwise(self.starts))

    @property
    def lengths(self) -> np.ndarray:
        """Number of subwords of each sequence, </s> included: (sequences,), int32."""
        lengths = np.diff(self.starts).astype(np.int32)
        self._unmap_pages()
        return lengths

    def pad(self, rows: np.ndarray) -> np.ndarray:
        """The sequences with the numbers `rows`, padded to the longest of them: (len(rows), longest)."""
        starts, ends = np.asarray(self.starts[rows]), np.asarray(self.starts[rows + 1])
        indices = starts[:, None] + np.arange((ends - starts).max(initial=0))
        padded = np.where(indices < ends[:, None], self.ids[np.minimum(indices, len(self.ids) - 1)], PAD)
        self._unmap_pages()
        return padded

    def _unmap_pages(self) -> None:
        """Unmap the pages that were read, or this process would hold the whole corpus after an epoch.

        The pages stay in the operating system's cache.
        """
        for file in (self.ids.base, self.starts.base):
            if MADV_DONTNEED is not None and isinstance(file, mmap.mmap):
                file.madvise(MADV_DONTNEED)


def id_type(vocabulary: int) -> type[np.integer]:
    """The type of ids on disk: 16 bits where a vocabulary of this size allows it, else 32."""
    return np.uint16 if vocabulary <= 2**16 else np.int32


def pair_block(rows: Sequence[IdPair], dtype: type[np.integer]) -> PairBlock:
    """The block of some pairs."""
    sources, targets, lines = zip(*rows, strict=True)
    return PairBlock(IdBlock.pack(sources, dtype), IdBlock.pack(targets, dtype), np.array(lines, np.int64))


class Batch(NamedTuple):
    """Some pairs as arrays of int64, or as tensors on a device. A subword is predicted at every target position."""

    source: Any  # ids (B, S)
    target_input: Any  # ids (B, T), from <s> on
    positions: Any  # (tokens,): those of the flattened output (B * T) that are not padding
    targets: Any  # (tokens,): the id to predict at each of them, </s> included


def make_batch(source: np.ndarray, output: np.ndarray) -> Batch:
    """Padded ids of both sides, each sentence with </s> at its end, to a batch: (B, S), (B, T) -> Batch.

    The decoder reads the output shifted by one: <s> and the target, without its last subword.
    """
    input = np.concatenate([np.full((len(output), 1), BOS, output.dtype), output[:, :-1]], axis=1)
    input[output == PAD] = PAD
    positions = np.flatnonzero(output != PAD)
    targets = output.reshape(-1)[positions]
    return Batch(*(part.astype(np.int64) for part in (source, input, positions, targets)))  # torch indexes by int64


class Pairs:
    """Parallel sequences: source and target, each ending in </s>.

    lines: the line number of each pair in data/raw, from 1 (pairs,). files: the text's files with their numbers of
    lines, if there are several.
    """

    def __init__(self, source: Sequences, target: Sequences, lines: np.ndarray, files: Sequence[tuple[str, int]] = ()):
        self.source, self.target, self.lines, self.files = source, target, lines, files
        self.source_lengths, self.target_lengths = source.lengths, target.lengths
        self.longest = np.maximum(self.source_lengths, self.target_lengths)  # the longer side of each pair

    @classmethod
    def load(cls, folder: Path, split: str) -> Pairs:
        """Memory-map one split of a folder that `save` wrote."""
        source, target = (Sequences.load(folder / f"{split}.{side}") for side in ("source", "target"))
        lines, files = load_array(folder / f"{split}.lines.npy"), folder / f"{split}.files.json"
        return cls(source, target, lines, read_json(files) if files.is_file() else ())

    @classmethod
    def pack(cls, pairs: Iterable[tuple[Sequence[int], Sequence[int]]]) -> Pairs:
        """Pairs in memory, from source and target ids without </s>. Their lines are numbered from 1."""
        rows = [(source, target, line) for line, (source, target) in enumerate(pairs, start=1)]
        if not rows:
            raise Mistake("There are no pairs.")
        source, target, lines = pair_block(rows, np.int32)
        return cls(Sequences.unpack(source), Sequences.unpack(target), lines)

    def digest(self) -> str:
        """A hash of the ids of both sides."""
        digest = hashlib.sha256()
        for part in (self.source.ids, self.source.starts, self.target.ids, self.target.starts):
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()

    @staticmethod
    def save(folder: Path, split: str, blocks: Iterable[PairBlock], vocabulary: int) -> int:
        """Write the files that `load` reads, block by block, and return the number of pairs.

        vocabulary: its size, which chooses the type of the ids.
        """
        count = 0
        with ExitStack() as stack:
            source, target = (
                SequencesFile(stack, folder / f"{split}.{side}", id_type(vocabulary)) for side in ("source", "target")
            )
            lines = stack.enter_context(ArrayFile(folder / f"{split}.lines.npy", np.int64))
            for block in blocks:
                source.add(block.source)
                target.add(block.target)
                lines.add(block.lines)
                count += len(block.lines)
        return count

    @classmethod
    def save_rows(cls, folder: Path, split: str, rows: Iterable[IdPair], vocabulary: int) -> int:
        """Write pairs that come one by one; see `save`."""
        blocks = (pair_block(pairs, id_type(vocabulary)) for pairs in chunks(rows, PAIRS_AT_ONCE))
        return cls.save(folder, split, blocks, vocabulary)

    def rows(self) -> Iterator[IdPair]:
        """The pairs as `save_rows` takes them, one after another."""
        for source, target, line in zip(self.source, self.target, self.lines, strict=True):
            yield source[:-1].tolist(), target[:-1].tolist(), int(line)

    def check_lengths(self, split: str, device_tokens: int) -> None:
        """Raise Mistake with the line number if a pair has more than `device_tokens` subwords on one side."""
        row = int(np.argmax(self.longest))
        if self.longest[row] > device_tokens:
            raise Untrainable(
                f"{self.name_lines(split, [int(self.lines[row])])} has {self.longest[row]} subwords, </s> included: "
                f"more than device_tokens={device_tokens}. Raise device_tokens, or shorten or remove that line."
            )

    def __len__(self) -> int:
        return len(self.longest)

    def swap(self) -> Pairs:
        """The same pairs with source and target swapped."""
        return Pairs(self.target, self.source, self.lines, self.files)

    def name_lines(self, split: str, lines: Iterable[int]) -> str:
        """Line numbers in words: `train lines 3, 9`; by file, if the text comes from several: `a.de lines 3, 9`."""
        by_file: dict[str, list[int]] = {}
        for line in lines:
            name, number = position_of(line, self.files) if self.files else (split, line)
            by_file.setdefault(name, []).append(number)
        return "; ".join(
            f"{name} line{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}" for name, numbers in by_file.items()
        )

    def batch(self, rows: np.ndarray) -> Batch:
        """The pairs with the numbers `rows`, padded to the longest of them on each side."""
        return make_batch(self.source.pad(rows), self.target.pad(rows))
