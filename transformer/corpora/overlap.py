"""How much of the test text occurs in the training text, exactly or nearly: scores on such lines flatter a model."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

NEAR = 0.8  # share of the word trigrams of a test line that a training line must have
COMMON = 50  # a trigram of more test lines than this says nothing about one of them
_WORD = re.compile(r"\w+")


class Found(NamedTuple):
    """A test line that a training line contains."""

    test_set: str
    side: int  # 0: source, 1: target
    row: int  # of the test line, from 0
    exact: bool
    line: int  # number of the training line


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

    def look_up(self, number: int, line: str, side: int) -> Iterator[Found]:
        """The test lines that a training line contains. number: of the line, from 1."""
        found = words(line)
        hits = Counter(test for trigram in trigrams(found) for test in self._with.get((side, trigram), ()))
        near = {test for test, count in hits.items() if count >= self._needed[side, test]}
        if (side, found) in self._places:
            near.add(found)
        for test in near:
            for name, row, text in self._places[side, test]:
                yield Found(name, side, row, text == line, number)


def summary(found: Sequence[Found], sizes: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Counts per test set: lines of each side that occur exactly, or nearly, in train; and pairs of which both do.

    sizes: lines of each test set.
    """
    counts = {}
    for name, size in sizes.items():
        of = [[one for one in found if (one.test_set, one.side) == (name, side)] for side in (0, 1)]
        exact = [{one.row for one in side if one.exact} for side in of]
        near = [{one.row for one in side} - rows for side, rows in zip(of, exact, strict=True)]
        together = set.intersection(*({(one.row, one.line) for one in side} for side in of))
        counts[name] = {"lines": size, "source_exact": len(exact[0]), "source_near": len(near[0]),
                        "target_exact": len(exact[1]), "target_near": len(near[1]),
                        "pairs": len({row for row, _ in together})}  # fmt: skip
    return counts
