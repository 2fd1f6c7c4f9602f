"""Subwords to ids and back: the vocabulary, built by torchtext, and the file that holds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from transformer.files import Mistake, read_lines, write_lines
from transformer.text.marks import SPACE, join

SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
PAD, UNK, BOS, EOS = range(4)


class Vocabulary:
    """Subwords and their ids. Ids 0 to 3 are <pad>, <unk>, <s> and </s>."""

    def __init__(self, subwords: Sequence[str]):
        if tuple(subwords[: len(SPECIALS)]) != SPECIALS:
            raise Mistake(f"A vocabulary must start with {' '.join(SPECIALS)}; got {' '.join(subwords[:4])[:40]!r}.")
        self.subwords = list(subwords)
        self._ids = {subword: number for number, subword in enumerate(self.subwords)}
        if len(self._ids) < len(self.subwords):
            twice = next(subword for number, subword in enumerate(subwords) if self._ids[subword] != number)
            raise Mistake(f"The subword {twice[:40]!r} is in the vocabulary twice. Copy the file again.")

    @classmethod
    def build(cls, counts: Counter[str], min_count: int) -> Vocabulary:
        """The vocabulary of counted subwords: all that occur at least `min_count` times, the most frequent first.

        torchtext's Vocab chooses them and orders them, those of equal counts by alphabet, after SPECIALS.
        """
        from torchtext.vocab import Vocab  # imported here, because translating does not need torchtext

        return cls(Vocab(counts, min_freq=min_count, specials=list(SPECIALS)).itos)

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Read a vocab.txt: one subword per line; ids count lines from 0."""
        subwords = list(read_lines(path))
        try:
            return cls(subwords)
        except Mistake as error:
            raise Mistake(f"{path}: {error}") from None

    def save(self, path: Path) -> None:
        """Write vocab.txt."""
        write_lines(path, self.subwords)

    def __len__(self) -> int:
        return len(self.subwords)

    def ids(self, subwords: Iterable[str]) -> list[int]:
        """The ids of subwords. A subword that is not in the vocabulary becomes <unk>. No <s> or </s> is added."""
        return [self._ids.get(subword, UNK) for subword in subwords]

    def text(self, ids: Iterable[int]) -> str:
        """The line of text that ids spell. <pad>, <s> and </s> are left out; <unk> becomes a separate word."""
        shown = (number for number in ids if number not in (PAD, BOS, EOS))
        return join(f"{SPACE}<unk>" if number == UNK else self.subwords[number] for number in shown)
