"""The test sentences for the table of a report: their scores, their differences, and how the page holds them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property

import pandas as pd

from transformer.evaluation.scores import sentence_scores
from transformer.files import Mistake
from transformer.reporting.packing import compress


@dataclass(frozen=True)
class Sentences:
    """A test set with its translations. words: the number of words of each source.

    Raises Mistake if the numbers of lines differ.
    """

    sources: Sequence[str]
    references: Sequence[str]
    hypotheses: Sequence[str]
    words: Sequence[int]

    def __post_init__(self) -> None:
        sides = (self.sources, self.references, self.hypotheses, self.words)
        if len({len(lines) for lines in sides}) > 1:
            counts = "{} source, {} reference and {} hypothesis lines".format(*map(len, sides))
            raise Mistake(f"{counts}: their numbers must be equal. Translate the test set again.")

    def __len__(self) -> int:
        return len(self.references)

    @cached_property
    def chrf(self) -> list[float]:
        """The chrF of each sentence, in percent."""
        return [round(score, 1) for score in sentence_scores(self.hypotheses, self.references)]

    def csv(self) -> str:
        """All sentences as CSV."""
        table = {
            "line": range(1, len(self) + 1),
            "chrf": self.chrf,
            "words": self.words,
            "reference": self.references,
            "translation": self.hypotheses,
            "source": self.sources,
        }
        return pd.DataFrame(table).to_csv(index=False, lineterminator="\n")


def different_words(reference: str, hypothesis: str) -> tuple[list[int], list[int]]:
    """The numbers, from 0, of the words that only the reference has, and of those that only the hypothesis has."""
    left, right = reference.split(), hypothesis.split()
    missing, extra = set(range(len(left))), set(range(len(right)))
    for i, j, size in SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks():
        missing -= set(range(i, i + size))
        extra -= set(range(j, j + size))
    return sorted(missing), sorted(extra)


def choose_telling(scores: Sequence[float], lengths: Sequence[int], count: int) -> list[int]:
    """The numbers of at most `count` sentences that tell most: a quarter the worst, a quarter the best (of equal ones
    the longest), the others evenly spaced. In the order of the test set.

    scores, lengths: of each sentence.
    """
    order = range(len(scores))
    if count >= len(scores):
        return list(order)
    worst = sorted(order, key=lambda i: (scores[i], i))[: count // 4]
    best = sorted(order, key=lambda i: (-scores[i], -lengths[i], i))[: count // 4]
    spread = count - len(worst) - len(best)
    even = {(2 * k + 1) * len(scores) // (2 * spread) for k in range(spread)} if spread else set()
    return sorted({*worst, *best, *even})


def pack(columns: Mapping[str, Sequence]) -> str:
    """Columns as JSON, compressed; see packing.py."""
    return compress(json.dumps(columns, ensure_ascii=False, separators=(",", ":")).encode("utf-8"))


def columns(shown: Sentences, rows: Sequence[int]) -> dict[str, list]:
    """The columns of the table for the sentences with these numbers. missing, extra: see `different_words`."""
    differences = [different_words(shown.references[row], shown.hypotheses[row]) for row in rows]
    return {
        "line": [row + 1 for row in rows],
        "chrf": [shown.chrf[row] for row in rows],
        "words": [shown.words[row] for row in rows],
        "source": [shown.sources[row] for row in rows],
        "reference": [shown.references[row] for row in rows],
        "hypothesis": [shown.hypotheses[row] for row in rows],
        "missing": [missing for missing, _ in differences],
        "extra": [extra for _, extra in differences],
    }


def fit(shown: Sentences, most_bytes: int) -> tuple[str, int]:
    """The sentences as `pack`, and their number: all, or the most telling ones that need at most so many bytes."""
    count = len(shown)
    while True:
        rows = choose_telling(shown.chrf, shown.words, count)
        text = pack(columns(shown, rows))
        if len(text) <= most_bytes or count <= 1:
            return text, len(rows)
        count = max(1, min(count - 1, int(0.95 * count * most_bytes / len(text))))
