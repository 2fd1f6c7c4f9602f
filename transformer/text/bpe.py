"""Words to subwords by byte-pair merges, which subword-nmt learns and applies; the codes file that holds them."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from subword_nmt import apply_bpe, learn_bpe

from transformer.files import write_text

CACHED_WORDS = 100_000  # words whose subwords are remembered


class Merges:
    """Byte-pair merges (Sennrich et al. 2016) that cut words into subwords.

    codes: the text of a bpe.codes file. A file without merges leaves words whole.
    """

    def __init__(self, codes: str):
        self._bpe = apply_bpe.BPE(io.StringIO(codes)) if codes.partition("\n")[2] else None

    @classmethod
    def load(cls, path: Path) -> Merges:
        """Read a bpe.codes file as `learn_merges` wrote it."""
        return cls(path.read_text(encoding="utf-8"))

    @property
    def empty(self) -> bool:
        """Whether there are no merges, so that words stay whole."""
        return self._bpe is None

    def subwords(self, tokens: Iterable[str]) -> list[str]:
        """Cut each token into subwords. Joined, the subwords of a token give the token."""
        if self._bpe is None:
            return list(tokens)
        bpe, pieces = self._bpe, []
        if len(bpe.cache) > CACHED_WORDS:  # a server sees new words for ever
            bpe.cache.clear()
        for token in tokens:
            # BPE.segment marks cuts with "@@", which the text may contain too; encode() gives the pieces without marks.
            pieces += apply_bpe.encode(token, bpe.bpe_codes, bpe.bpe_codes_reverse, None, "", bpe.version, bpe.cache)
        return pieces


def learn_merges(lines: Iterable[str], merges: int) -> str:
    """Learn merges from tokenised lines, and return the text of the codes file.

    lines: tokens separated by one space. merges: how many to learn at most.
    """
    counts = Counter(token for line in lines for token in line.split(" ") if token)
    codes = io.StringIO()
    if merges and any(len(token) > 1 for token in counts):
        table = [f"{token} {count}" for token, count in sorted(counts.items())]
        learn_bpe.learn_bpe(table, codes, merges, is_dict=True)
        return codes.getvalue()
    return "#version: 0.2\n"


def save_merges(codes: str, path: Path) -> None:
    """Write a bpe.codes file, completely or not at all."""
    write_text(path, codes)
