"""Training pairs as people type: without their final mark, or with two letters of a source word swapped.

A model that has seen neither loses up to a quarter of its score on such lines (docs/results.md, "As people type").
"""

from __future__ import annotations

import hashlib

import regex

from transformer.text.marks import SPACE
from transformer.text.scripts import UNSPACED

WITHOUT_MARK = 0.25  # of the variants; the others have two letters swapped
_MARK = regex.compile(rf"(?: |^){SPACE}?[\p{{Sentence_Terminal}}…]+$")
_WORD = regex.compile(rf"(?V1)[\p{{L}}--{UNSPACED}]{{4,}}")  # a run of letters without spaces is several words


def variant(source: str, target: str, share: float) -> tuple[str, str]:
    """Tokenised lines of a pair to what is learnt of it: a variant for a share of all pairs, by a hash of both."""
    hashed = hashlib.blake2b(f"{source}\n{target}".encode(), digest_size=16).digest()
    chance, number = (int.from_bytes(half) for half in (hashed[:8], hashed[8:]))
    if chance >= share * 2**64:
        return source, target
    if chance >= share * WITHOUT_MARK * 2**64:
        return swapped(source, number), target
    if _MARK.search(source) and _MARK.search(target):
        return _MARK.sub("", source), _MARK.sub("", target)
    return source, target


def swapped(line: str, number: int) -> str:
    """A line with two neighbouring letters swapped, behind the first of a word of four letters or more.

    number: chooses the word and the letters.
    """
    words = list(_WORD.finditer(line))
    if not words:
        return line
    number, chosen = divmod(number, len(words))
    word = words[chosen]
    first = word.start() + 1 + number % (len(word[0]) - 2)
    return line[:first] + line[first + 1] + line[first] + line[first + 2 :]
