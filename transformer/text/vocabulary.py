"""Subwords and their ids, counted by torchtext."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from transformer.files import read_lines, write_lines
from transformer.text.words import (
    SPACE,
    join,
)

SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
PAD, UNK, BOS, EOS = range(4)


class Vocabulary:
    """Subwords and their ids. Ids 0 to 3 are <pad>, <unk>, <s> and </s>."""

    def __init__(self, subwords: Sequence[str]):
        if tuple(subwords[: len(SPECIALS)]) != SPECIALS:
            raise ValueError(f"a vocabulary must open with {' '.join(SPECIALS)}; got {' '.join(subwords[:4])!r}")
        self.subwords = list(subwords)
        self._ids = {subword: number for number, subword in enumerate(self.subwords)}

    @classmethod
    def count(cls, lines: Iterable[Iterable[str]], min_count: int) -> Vocabulary:
        """All subwords that occur at least `min_count` times, the most frequent first, by torchtext's Vocab."""
        from torchtext.vocab import Vocab  # here alone: who only translates does not need torchtext

        counts = Counter(subword for line in lines for subword in line)
        return cls(Vocab(counts, min_freq=min_count, specials=list(SPECIALS)).itos)

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Read a vocab.txt: one subword a line, the line number is the id."""
        return cls(list(read_lines(path)))

    def save(self, path: Path) -> None:
        """Write vocab.txt."""
        write_lines(path, self.subwords)

    def __len__(self) -> int:
        return len(self.subwords)

    def ids(self, subwords: Iterable[str]) -> list[int]:
        """Ids of subwords; what the vocabulary lacks becomes <unk>. No <s> or </s> is added."""
        return [self._ids.get(subword, UNK) for subword in subwords]

    def text(self, ids: Iterable[int]) -> str:
        """The line that ids spell; <pad>, <s> and </s> are silent, <unk> shows as a word of its own."""
        silent = (PAD, BOS, EOS)
        return join(
            f"{SPACE}<unk>" if number == UNK else self.subwords[number] for number in ids if number not in silent
        )
