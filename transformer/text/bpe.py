"""Words to subwords by byte-pair merges, which subword-nmt learns and applies; the codes file that holds them."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Mapping
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any, TextIO

from subword_nmt import apply_bpe, learn_bpe

from transformer.files import Mistake

VERSION = "#version: 0.2\n"  # of the codes file, its first line
CACHED_WORDS, LONGEST_KNOWN = 100_000, 100  # words whose subwords are remembered, and their characters at most


class Merges:
    """Byte-pair merges (Sennrich et al. 2016) that cut words into subwords.

    codes: the text of a bpe.codes file. A file without merges leaves words whole.
    """

    def __init__(self, codes: str):
        self.codes = codes
        self._bpe = apply_bpe.BPE(io.StringIO(codes)) if codes.partition("\n")[2] else None

    @classmethod
    def load(cls, path: Path) -> Merges:
        """Read a bpe.codes file as `learn_merges` wrote it."""
        damage = Mistake(f"{path} is damaged: another version, or a line that is no merge. Copy it again.")
        try:
            codes = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise damage from None
        if not codes.startswith(VERSION):
            raise damage
        try:
            with redirect_stderr(io.StringIO()):  # subword-nmt prints an error and exits
                return cls(codes)
        except (SystemExit, IndexError):
            raise damage from None

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The symbols that each merge joins, in the order of the merges. "</w>" ends the last symbol of a word."""
        ranks: Any = self._bpe.bpe_codes if self._bpe else {}  # pair -> rank
        return sorted(ranks, key=ranks.get)

    def subwords(self, tokens: Iterable[str]) -> list[str]:
        """Cut each token into subwords. Joined, the subwords of a token give the token."""
        if self._bpe is None:
            return list(tokens)
        bpe, subwords = self._bpe, []
        if len(bpe.cache) > CACHED_WORDS:  # a server sees new words for ever
            bpe.cache.clear()
        for token in tokens:
            # BPE.segment marks cuts with "@@", which the text may contain too; encode() gives them without marks.
            cache = bpe.cache if len(token) <= LONGEST_KNOWN else {}
            subwords += apply_bpe.encode(token, bpe.bpe_codes, bpe.bpe_codes_reverse, None, "", bpe.version, cache)
        return subwords


class _BarAlone:
    """Standard error for subword-nmt: only its progress bar, and only on a terminal."""

    def __init__(self, shown: TextIO):
        self._shown = shown

    def write(self, text: str) -> None:
        if self._shown.isatty() and "Stopping" not in text:
            self._shown.write(text)

    def flush(self) -> None:
        self._shown.flush()


def learn_merges(counts: Mapping[str, int], merges: int) -> str:
    """Learn merges from words with their counts, and return the text of the codes file.

    merges: how many to learn at most.
    """
    codes = io.StringIO()
    if merges and any(len(word) > 1 for word in counts):
        table = [f"{word} {count}" for word, count in sorted(counts.items())]
        with redirect_stderr(_BarAlone(sys.stderr)):  # type: ignore[type-var]
            learn_bpe.learn_bpe(table, codes, merges, is_dict=True)
        return codes.getvalue()
    return VERSION
