"""BLEU of parts of a test set: by the length of the source, and by how rare its rarest word is in the training text."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from transformer.evaluation.intervals import estimate_bleu
from transformer.text.marks import SPACE

LENGTHS = (0, 1, 6, 11, 16, 21, 31, 51)  # of each bucket: the least number of words of a source
FREQUENCIES = (0, 1, 2, 5, 10, 100, 1000)  # of each bucket: how often, at least, the rarest word occurs in train
FEWEST = 20  # sentences with an interval: resamples of fewer say little


class Bucket(NamedTuple):
    """A part of a test set. name: its range of values.

    margin: see intervals.Estimate; None for fewer than FEWEST sentences, and where all resamples have the same score.
    """

    name: str
    sentences: int
    bleu: float
    margin: float | None


def buckets(
    values: Sequence[int | None],
    least: Sequence[int],
    hypotheses: Sequence[str],
    references: Sequence[str],
    language: str,
) -> list[Bucket]:
    """The buckets that have sentences, in order, each with corpus BLEU and its interval.

    values: of each sentence, what puts it into a bucket; a sentence with None is in none. least: the least value of
    each bucket, rising. language: of the references; it chooses how sacreBLEU splits them into tokens.
    """
    rows: dict[int, list[int]] = {}
    for row, value in enumerate(values):
        if value is not None:
            rows.setdefault(bisect_right(least, value) - 1, []).append(row)
    parts = []
    for index in sorted(rows):
        ours, theirs = ([side[row] for row in rows[index]] for side in (hypotheses, references))
        score, margin = estimate_bleu(ours, theirs, language)
        known = len(ours) >= FEWEST and margin
        parts.append(Bucket(name(least, index), len(ours), score, margin if known else None))
    return parts


def bucket_scores(
    words: Sequence[Sequence[str]],
    counts: Mapping[str, int],
    hypotheses: Sequence[str],
    references: Sequence[str],
    language: str,
) -> dict[str, list[Bucket]]:
    """What the buckets differ in -> the buckets. words: of each source. counts: see `rarest_counts`."""
    parts = {
        "words of the source": ([len(line) for line in words], LENGTHS),
        "occurrences in train of the rarest word": (rarest_counts(words, counts), FREQUENCIES),
    }
    return {title: buckets(values, least, hypotheses, references, language) for title, (values, least) in parts.items()}


def name(least: Sequence[int], index: int) -> str:
    """The range of values of a bucket: 0, 1–5, 51 or more."""
    first = f"{least[index]:,}"
    if index + 1 == len(least):
        return f"{first} or more"
    last = least[index + 1] - 1
    return first if last == least[index] else f"{first}–{last:,}"


def rarest_counts(sentences: Iterable[Sequence[str]], counts: Mapping[str, int]) -> list[int | None]:
    """How often the rarest word of each sentence occurs in train; None for a sentence without words.

    counts: word without ▁ -> its number in train, for words that occur there.
    """
    return [min((counts.get(word.removeprefix(SPACE), 0) for word in words), default=None) for words in sentences]


def count_words(lines: Iterable[str], words: Iterable[str]) -> dict[str, int]:
    """How often each of `words` occurs. Counts with and without ▁ are added: after a bracket, a word has none.

    lines: word, space, number. Returns word without ▁ -> number.
    """
    plain, numbers = {word.removeprefix(SPACE) for word in words}, {}
    for line in lines:
        marked, _, number = line.rpartition(" ")
        word = marked.removeprefix(SPACE)
        if word in plain:
            numbers[word] = numbers.get(word, 0) + int(number)
    return numbers
