"""Tokenised lines to ids, block by block, in several processes; and what is lost and gained by it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from transformer.cores import workers
from transformer.text.blocks import Block
from transformer.text.bpe import Merges
from transformer.text.pairs import IdBlock, PairBlock, id_type
from transformer.text.variants import variant
from transformer.text.vocabulary import EOS, SPECIALS, UNK, Vocabulary

WORDS_IN_MEMORY = 1_000_000  # with their ids, over all processes: about 200 MB


class EncodedBlock(NamedTuple):
    """The ids of a block of pairs."""

    first: int  # number of its first pair, from 1
    pairs: int  # all pairs of the block
    rows: np.ndarray  # the kept pairs, from 0
    sides: tuple[IdBlock, IdBlock]  # of the kept pairs
    words: tuple[int, int]  # number of words of the kept pairs, per side

    def pair_block(self, lines: np.ndarray | None) -> PairBlock:
        """The kept pairs. lines: the line of each pair of the split; None: its number."""
        numbers = self.first + self.rows
        return PairBlock(*self.sides, numbers if lines is None else np.asarray(lines)[numbers - 1])


class Encoder:
    """The function of a worker process: a block of tokenised pairs to their ids.

    max_length: pairs with an empty side, or with more subwords on a side, are left out; None: all are kept. variants:
    the share of pairs that are replaced by a variant (variants.py). A word is cut the same way each time, so its ids
    are remembered.
    """

    def __init__(self, codes: Path, vocab: Path, max_length: int | None = None, variants: float = 0.0):
        self.merges, self.vocabulary = Merges.load(codes), Vocabulary.load(vocab)
        self.max_length, self.variants = max_length, variants
        self.dtype = id_type(len(self.vocabulary))
        self._ids: dict[str, list[int]] = {}
        self._most = WORDS_IN_MEMORY // workers()

    def __call__(self, block: Block) -> EncodedBlock:
        lines = block.lines()
        if self.variants:
            source, target = lines
            pairs = [variant(*pair, self.variants) for pair in zip(source, target, strict=True)]
            lines = [list(side) for side in zip(*pairs, strict=True)]
        encoded = [[self.ids(line) for line in side] for side in lines]
        most = self.max_length
        kept = [
            row
            for row, pair in enumerate(zip(*encoded, strict=True))
            if most is None or all(1 <= len(ids) <= most for ids in pair)
        ]
        sides = tuple(IdBlock.pack([side[row] for row in kept], self.dtype) for side in encoded)
        words = tuple(sum(side[row].count(" ") + 1 for row in kept if side[row]) for side in lines)
        return EncodedBlock(block.first, block.count, np.array(kept, np.int64), sides, words)  # type: ignore[arg-type]

    def ids(self, line: str) -> list[int]:
        """The ids of a line of tokens, without </s>."""
        known, line_ids = self._ids, []
        for word in line.split(" ") if line else ():
            ids = known.get(word)
            if ids is None:
                if len(known) >= self._most:
                    known.clear()
                ids = known[word] = self.vocabulary.ids(self.merges.subwords([word]))
            line_ids += ids
        return line_ids


class SubwordCounts:
    """How the words of a split became subwords. vocabulary: its size."""

    def __init__(self, vocabulary: int):
        self.pairs = self.kept = 0
        self._ids = np.zeros((2, vocabulary), np.int64)
        self._words = np.zeros(2, np.int64)

    def add(self, block: EncodedBlock) -> None:
        """Count a block."""
        self.pairs += block.pairs
        self.kept += len(block.rows)
        for side, part in enumerate(block.sides):
            self._ids[side] += np.bincount(part.ids, minlength=self._ids.shape[1])
        self._words += block.words

    def summary(self) -> dict[str, dict[str, float]]:
        """Per side: sentences, words, subwords and their ratio, the share of <unk>, how much of the vocabulary occurs.

        vocabulary_coverage leaves out <pad>, <unk>, <s> and </s>.
        """
        sides = {}
        for name, counts, words in zip(("source", "target"), self._ids, self._words.tolist(), strict=True):
            subwords = int(counts.sum() - counts[EOS])
            occurs = counts[len(SPECIALS) :] > 0
            sides[name] = {
                "sentences": self.kept,
                "words": words,
                "subwords": subwords,
                "subwords_per_word": round(subwords / max(1, words), 4),
                "unknown_rate": round(int(counts[UNK]) / max(1, subwords), 6),
                "vocabulary_coverage": round(float(occurs.sum()) / max(1, len(occurs)), 4),
            }
        return sides
