"""How much of the test text occurs in the training text, exactly or nearly: scores on such lines flatter a model."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

NEAR = 0.8  # share of the word trigrams of a test line that a training line must have
COMMON = 50  # a trigram of more test lines than this says nothing about one of them
_WORD = re.compile(r"\w+")


class Found(NamedTuple):
    """A test line that a training line contains."""

    test_set: str
    side: int  # 0: source, 1: target
    row: int  # of the test line, from 0
    exact: bool


@dataclass
class Overlap:
    """The test lines that occur in training lines, each with the number of the first such line.

    pairs: (test set, row) of test pairs both sides of which occur in one training pair. Its size is bounded by that of
    the test sets, whatever the size of the training text.
    """

    lines: dict[Found, int] = field(default_factory=dict)
    pairs: dict[tuple[str, int], int] = field(default_factory=dict)

    def add(self, number: int, source: Sequence[Found], target: Sequence[Found]) -> None:
        """Add what was found in the two sides of a training pair."""
        for one in (*source, *target):
            self.lines.setdefault(one, number)
        rows = {(one.test_set, one.row) for one in target}
        for one in source:
            if (one.test_set, one.row) in rows:
                self.pairs.setdefault((one.test_set, one.row), number)

    def merge(self, later: Overlap) -> None:
        """Add what was found in later training lines."""
        self.lines = later.lines | self.lines
        self.pairs = later.pairs | self.pairs

    def summary(self, sizes: Mapping[str, int]) -> dict[str, dict[str, int]]:
        """Counts per test set: lines of each side that occur exactly, or only nearly, and pairs. sizes: their lines."""
        counts = {}
        for name, size in sizes.items():
            counts[name] = {"lines": size}
            for side, title in enumerate(("source", "target")):
                exact = {one.row for one in self.lines if (one.test_set, one.side, one.exact) == (name, side, True)}
                rows = {one.row for one in self.lines if (one.test_set, one.side) == (name, side)}
                counts[name] |= {f"{title}_exact": len(exact), f"{title}_near": len(rows - exact)}
            counts[name]["pairs"] = sum(test_set == name for test_set, _ in self.pairs)
        return counts

    def listed(self, most: int) -> list[dict[str, Any]]:
        """Some of the lines that were found, with the number of the training line."""
        found = sorted(self.lines.items())[:most]
        return [one._asdict() | {"line": number} for one, number in found]


def words(line: str) -> tuple[str, ...]:
    """The words of a line without case and punctuation."""
    return tuple(_WORD.findall(line.lower()))


def trigrams(of: Sequence[str]) -> set[tuple[str, ...]]:
    """The distinct word trigrams of a line."""
    return set(zip(of, of[1:], of[2:], strict=False))


class TestText:
    """The lines of test sets, in which training lines are looked up. sets: name -> source lines and target lines.

    A line is near a test line if it has the same words, or at least NEAR of its word trigrams, without case and
    punctuation.
    """

    __test__ = False  # pytest would take it for tests

    def __init__(self, sets: Mapping[str, tuple[Sequence[str], Sequence[str]]]):
        self._places: dict[tuple[int, tuple[str, ...]], list[tuple[str, int, str]]] = defaultdict(list)
        for name, sides in sets.items():
            for side, lines in enumerate(sides):
                for row, line in enumerate(lines):
                    if found := words(line):
                        self._places[side, found].append((name, row, line))
        self._with: dict[tuple[int, tuple[str, ...]], list[tuple[str, ...]]] = defaultdict(list)
        for side, found in self._places:
            for trigram in trigrams(found):
                self._with[side, trigram].append(found)
        self._with = {key: lines for key, lines in self._with.items() if len(lines) <= COMMON}
        self._needed = {(side, found): NEAR * sum((side, trigram) in self._with for trigram in trigrams(found))
                        for side, found in self._places}  # fmt: skip

    def look_up(self, line: str, side: int) -> list[Found]:
        """The test lines that a training line contains."""
        found = words(line)
        hits = Counter(test for trigram in trigrams(found) for test in self._with.get((side, trigram), ()))
        near = {test for test, count in hits.items() if count >= self._needed[side, test]}
        if (side, found) in self._places:
            near.add(found)
        return [Found(name, side, row, text == line) for test in near for name, row, text in self._places[side, test]]
