"""How much of the test text occurs in the training text, exactly or nearly: scores on such lines flatter a model."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

import regex

from transformer.text.characters import normalise
from transformer.text.scripts import UNSPACED

NEAR = 0.8  # share of the trigrams of a test line that a training line must have
_WORD = regex.compile(rf"(?V1){UNSPACED}\p{{M}}*|[\w--{UNSPACED}]+")


class Near(NamedTuple):
    """A test line that is near a training line."""

    test_set: str
    side: int  # 0: source, 1: target
    row: int  # of the test line, from 0
    exact: bool  # the same characters


@dataclass
class Overlap:
    """The test lines that occur in training lines.

    pairs: (test set, row) of test pairs both sides of which occur in one training pair. Its size is bounded by that of
    the test sets, whatever the size of the training text.
    """

    lines: set[Near] = field(default_factory=set)
    pairs: set[tuple[str, int]] = field(default_factory=set)

    def add(self, source: Collection[Near], target: Collection[Near]) -> None:
        """Add the test lines that are near the two sides of a training pair."""
        self.lines.update(source, target)
        self.pairs |= {(near.test_set, near.row) for near in source} & {(near.test_set, near.row) for near in target}

    def merge(self, other: Overlap) -> None:
        """Add the overlap of other training lines."""
        self.lines |= other.lines
        self.pairs |= other.pairs

    def summary(self, sizes: Mapping[str, int]) -> dict[str, dict[str, int]]:
        """Counts per test set: lines of each side that occur exactly, or only nearly, and pairs. sizes: their lines."""
        counts = {}
        for name, size in sizes.items():
            counts[name] = {"lines": size}
            for side, title in enumerate(("source", "target")):
                lines = [line for line in self.lines if (line.test_set, line.side) == (name, side)]
                exact = {line.row for line in lines if line.exact}
                near = {line.row for line in lines} - exact
                counts[name] |= {f"{title}_exact": len(exact), f"{title}_near": len(near)}
            counts[name]["pairs"] = sum(test_set == name for test_set, _ in self.pairs)
        return counts


def words(line: str) -> tuple[str, ...]:
    """The words of a line without case and punctuation; of scripts that are written without spaces, the characters.

    Normal form, soft hyphens and the `_` of an accelerator make no difference. A line of symbols alone is a word.
    """
    return tuple(_WORD.findall(normalise(line, "nfc").replace("_", "").casefold())) or ((line,) if line else ())


def trigrams(of: Sequence[str]) -> set[tuple[str, ...]]:
    """The distinct trigrams of some words."""
    return set(zip(of, of[1:], of[2:], strict=False))


class TestText:
    """The lines of test sets, in which training lines are looked up. sets: name -> source lines and target lines.

    A line is near a test line if it has the same words, or at least NEAR of its distinct trigrams, without case and
    punctuation. A line that has k of the n trigrams of a test line has at least one of every n - k + 1 of them. So only
    the n - k + 1 rarest trigrams are looked up, with k = `least_shared` (prefix filtering, Chaudhuri et al. 2006).
    """

    __test__ = False  # pytest would take it for tests

    def __init__(self, sets: Mapping[str, tuple[Sequence[str], Sequence[str]]]):
        self._lines: dict[tuple[int, tuple[str, ...]], list[tuple[str, int, str]]] = defaultdict(list)
        for name, sides in sets.items():
            for side, lines in enumerate(sides):
                for row, line in enumerate(lines):
                    if key := words(line):
                        self._lines[side, key].append((name, row, line))
        self._trigrams = {key: trigrams(key[1]) for key in self._lines}
        often = Counter((side, trigram) for (side, _), parts in self._trigrams.items() for trigram in parts)
        self._with: dict[tuple[int, tuple[str, ...]], list[tuple[str, ...]]] = defaultdict(list)
        for (side, key), parts in self._trigrams.items():
            rarest = sorted(parts, key=lambda trigram, side=side: (often[side, trigram], trigram))
            for trigram in rarest[: len(parts) - least_shared(parts) + 1]:
                self._with[side, trigram].append(key)

    def look_up(self, line: str, side: int) -> list[Near]:
        """The test lines that a training line is near."""
        key = words(line)
        parts = trigrams(key)
        maybe = {test for trigram in parts for test in self._with.get((side, trigram), ())}
        texts = {test: self._trigrams[side, test] for test in maybe}
        near = {test for test, own in texts.items() if len(parts & own) >= least_shared(own)}
        if (side, key) in self._lines:
            near.add(key)
        return [Near(name, side, row, text == line) for test in near for name, row, text in self._lines[side, test]]


def least_shared(trigrams: Collection[object]) -> int:
    """How many of the trigrams of a test line a training line must have to be near."""
    return ceil(NEAR * len(trigrams))
