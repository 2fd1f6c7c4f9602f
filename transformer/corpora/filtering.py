"""Pairs of lines through the rules of the filter, block by block, in several processes; and what the rules dropped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from transformer.corpora.overlap import Overlap, TestText
from transformer.corpora.rules import FilterConfig, Rule, rules
from transformer.files import position_of
from transformer.text.blocks import Block
from transformer.text.characters import ODD, normalise
from transformer.text.placeholders import disagree

EXAMPLES = 5  # pairs shown for each rule
SHOWN = 300  # characters of each side of an example
LENGTH_STEP, LENGTH_BINS = 20, 26  # characters; the last bin holds all longer lines
DUPLICATE = "duplicates"
UNEVEN = 4  # times the characters of the other side, as where two pairs were glued
# What is odd in a pair, but no reason to drop it: characters of a side; placeholders that only one side has; lengths.
ODD_PAIRS: dict[str, Rule] = {
    **{name: lambda s, t, has=has: bool(has(s) or has(t)) for name, has in ODD.items()},
    "placeholders": disagree,
    "uneven": lambda s, t: max(len(s), len(t)) > UNEVEN * min(len(s), len(t)) > 0,
}


class Screened(NamedTuple):
    """What a process found in a block of pairs."""

    block: Block
    reasons: np.ndarray  # (pairs,) a bit for each rule that would drop the pair, in the order of the rules
    odd: np.ndarray  # (pairs,) a bit for each check of ODD_PAIRS that is true, in their order
    digests: np.ndarray  # (columns, pairs) hashes of each pair, or of each side if filter_duplicates is side
    lengths: np.ndarray  # (2, LENGTH_BINS) lines of each side by length
    overlap: Overlap  # test lines in these training lines


class Screen:
    """The function of a worker process: a block of pairs to what the rules and the test text say about it."""

    def __init__(self, config: FilterConfig, source: str, target: str, tests: TestText):
        self.rules = list(rules(config, source, target).values())
        self.duplicates, self.tests, self.normal_form = config.filter_duplicates, tests, config.normalise

    def __call__(self, block: Block) -> Screened:
        sides = block.lines()
        odd = bits([*ODD_PAIRS.values()], sides)
        sides = [[normalise(line, self.normal_form).strip() for line in lines] for lines in sides]
        reasons = bits(self.rules, sides)
        columns = sides if self.duplicates == "side" else [[f"{s}\n{t}" for s, t in zip(*sides, strict=True)]]
        digests = np.array([[digest(key) for key in column] for column in columns], np.uint64)
        lengths = np.array(
            [
                np.bincount([min(len(line) // LENGTH_STEP, LENGTH_BINS - 1) for line in lines], minlength=LENGTH_BINS)
                for lines in sides
            ]
        )
        overlap = Overlap()
        for pair in zip(*sides, strict=True):
            overlap.add(*(self.tests.look_up(line, side) for side, line in enumerate(pair)))
        return Screened(block, reasons, odd, digests, lengths, overlap)


def bits(checks: Sequence[Rule], sides: Sequence[Sequence[str]]) -> np.ndarray:
    """The pairs of two sides to a number each, in which bit n is set if check n is true of the pair."""
    numbers = np.zeros(len(sides[0]), np.uint16)
    for bit, check in enumerate(checks):
        numbers |= np.fromiter(map(check, *sides), bool, len(numbers)).astype(np.uint16) << bit
    return numbers


def digest(text: str) -> int:
    """A hash of 64 bits, the same in every process. Of ten million lines, two share one with probability 3e-6."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


class Report:
    """What the rules found, counted: alone, jointly, with examples.

    names: the rules, in the order of their bits. files: the text's files with their numbers of lines, by which the
    examples are named.
    """

    def __init__(self, names: Iterable[str], files: Sequence[tuple[str, int]] = ()):
        self.names, self.files = [*names], files
        self.combinations: Counter[int] = Counter()
        self.examples: dict[str, list[dict[str, Any]]] = {name: [] for name in self.names}
        self.lengths = np.zeros((2, LENGTH_BINS), np.int64)
        self.overlap = Overlap()
        self._digests: list[np.ndarray] = []  # of each block, one number a pair

    def add(self, screened: Screened, reasons: np.ndarray) -> None:
        """Count a block. reasons: those of the rules, with the bit of duplicates."""
        values, counts = np.unique(reasons, return_counts=True)
        self.combinations.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))
        self.lengths += screened.lengths
        self.overlap.merge(screened.overlap)
        self._digests.append(screened.digests[0] * np.uint64(0x9E3779B97F4A7C14) + screened.digests[-1])
        missing = sum(1 << bit for bit, name in enumerate(self.names) if len(self.examples[name]) < EXAMPLES)
        if not (reasons & missing).any():
            return
        sides = screened.block.lines()
        for row in np.flatnonzero(reasons & missing).tolist():
            pair = self._example(screened.block.first + row, *(side[row] for side in sides))
            for bit, name in enumerate(self.names):
                if reasons[row] >> bit & 1 and len(self.examples[name]) < EXAMPLES:
                    self.examples[name].append(pair)

    def _example(self, number: int, source: str, target: str) -> dict[str, str]:
        """A pair to show, with its position: the file, if there are several, and the line."""
        name, row = position_of(number, self.files) if self.files else ("", number)
        source, target = (f"{line[:SHOWN]} …" if len(line) > SHOWN else line for line in (source, target))
        return {"line": f"{name} {row}".strip(), "source": source, "target": target}

    @property
    def pairs(self) -> int:
        """How many pairs were counted."""
        return self.combinations.total()

    @property
    def kept(self) -> int:
        """How many of them no rule drops."""
        return self.combinations[0]

    @property
    def repetitions(self) -> int:
        """How many pairs occurred before."""
        digests = np.concatenate([np.zeros(0, np.uint64), *self._digests])
        return len(digests) - len(np.unique(digests))

    def count_fired(self, name: str) -> int:
        """For how many pairs a rule fires."""
        return sum(count for bits, count in self.combinations.items() if name in self._rules_of(bits))

    def _rules_of(self, bits: int) -> list[str]:
        return [name for bit, name in enumerate(self.names) if bits >> bit & 1]

    def describe(self) -> str:
        """How many pairs are kept, and how many each rule drops, in a line."""
        dropped = ", ".join(f"{name} {self.count_fired(name):,}" for name in self.names if self.count_fired(name))
        return f"{self.kept:,} of {self.pairs:,} training pairs kept{f'; dropped by {dropped}' if dropped else ''}"

    def counts(self) -> dict[str, Any]:
        """Pairs, kept pairs; of each rule: pairs for which it fires, and for which it alone does; the combinations."""
        together = {
            " + ".join(self._rules_of(bits)): count
            for bits, count in sorted(self.combinations.items())
            if len(self._rules_of(bits)) > 1
        }
        return {
            "pairs": self.pairs,
            "kept": self.kept,
            "fired": {name: self.count_fired(name) for name in self.names},
            "alone": {name: self.combinations[1 << bit] for bit, name in enumerate(self.names)},
            "together": together,
        }


def rule_names(config: FilterConfig, source: str, target: str) -> list[str]:
    """The names of the rules that are on, in the order of their bits. Duplicates are last."""
    return [*rules(config, source, target), *([DUPLICATE] if config.filter_duplicates != "none" else [])]


def summary(report: Report, odd: Report, reports: Mapping[str, Report], test_sets: Iterable[str]) -> dict[str, Any]:
    """What filter.json holds. report, odd: of train. reports: of valid and the test sets, by name."""
    return {
        **report.counts(),
        "repeated": report.repetitions,
        "examples": report.examples,
        "odd": {name: {"pairs": odd.count_fired(name), "examples": odd.examples[name]} for name in ODD_PAIRS},
        "length_step": LENGTH_STEP,
        "lengths": report.lengths.tolist(),
        "others": {name: {"pairs": split.pairs, "kept": split.kept} for name, split in reports.items()},
        "overlap": report.overlap.summary({name: reports[name].pairs for name in test_sets}),
    }


def mark_duplicates(screened: Iterable[Screened], names: Sequence[str]) -> Iterator[tuple[Screened, np.ndarray]]:
    """Blocks with the reasons of each pair, duplicates included. names: of the rules that are on.

    Of equal pairs, or of pairs with an equal side, the first that no other rule drops is kept.
    """
    bit = names.index(DUPLICATE) if DUPLICATE in names else None
    seen: list[set[int]] = []
    for block in screened:
        reasons = block.reasons.copy()
        if bit is not None:
            seen = seen or [set() for _ in block.digests]
            for row, keys in enumerate(zip(*block.digests.tolist(), strict=True)):
                if any(key in known for key, known in zip(keys, seen, strict=True)):
                    reasons[row] |= 1 << bit
                elif not reasons[row]:
                    for key, known in zip(keys, seen, strict=True):
                        known.add(key)
        yield block, reasons
