"""Byte-pair merges, learned and applied by subword-nmt."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from subword_nmt import apply_bpe, learn_bpe

from transformer.files import whole_file


class Merges:
    """Byte-pair merges (Sennrich et al. 2016), learned and applied by subword-nmt. No merges: words stay whole."""

    def __init__(self, codes: str):
        self._bpe = apply_bpe.BPE(io.StringIO(codes)) if codes.partition("\n")[2] else None

    @classmethod
    def load(cls, path: Path) -> Merges:
        """Read a bpe.codes file as `learn_merges` wrote it."""
        return cls(path.read_text(encoding="utf-8"))

    @property
    def none(self) -> bool:
        """Words stay whole."""
        return self._bpe is None

    def subwords(self, tokens: Iterable[str]) -> list[str]:
        """Cut each token into subwords; the concatenation stays the same."""
        if self._bpe is None:
            return list(tokens)
        bpe, pieces = self._bpe, []
        for token in tokens:
            # BPE.segment would mark the cuts with "@@", which text may hold too; encode() gives the bare pieces.
            pieces += apply_bpe.encode(token, bpe.bpe_codes, bpe.bpe_codes_reverse, None, "", bpe.version, bpe.cache)
        return pieces


def learn_merges(lines: Iterable[str], merges: int) -> str:
    """Learn at most `merges` merges from tokenised lines (tokens separated by one space); returns the codes file."""
    counts = Counter(token for line in lines for token in line.split(" ") if token)
    codes = io.StringIO()
    if merges and any(len(token) > 1 for token in counts):
        table = [f"{token} {count}" for token, count in sorted(counts.items())]
        learn_bpe.learn_bpe(table, codes, merges, is_dict=True)
        return codes.getvalue()
    return "#version: 0.2\n"


def save_merges(codes: str, path: Path) -> None:
    """Write bpe.codes, whole or not at all."""
    with whole_file(path) as temporary:
        temporary.write_text(codes, encoding="utf-8")
