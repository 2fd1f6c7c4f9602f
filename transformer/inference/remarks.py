"""What may be wrong with a translation, seen without a reference; and which lines of a text that concerns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from transformer.files import read_lines
from transformer.inference.translation import SentencePair
from transformer.text.marks import SPACE
from transformer.text.placeholders import disagree
from transformer.text.words import Side

KINDS = {  # kind -> what is said of a translation
    "limit": "cut at the length limit",
    "repeated": "the same words again and again",
    "empty": "empty",
    "short": "far shorter than the source",
    "long": "far longer than the source",
    "copied": "a copy of the source",
    "lost": "without a placeholder, address or large number of the source, or with another",
    "unseen": "made from words that the training text lacks",
}
TIMES, LONGEST = 3, 4  # so many times in a row, of so many words at most
MOST_RATIO, LEAST_RATIO = 3, 4  # times the subwords of the source, and of the translation
FEW = 10  # subwords, below which a ratio says little
SHOWN = 8  # line numbers, and unseen words


def remarks(
    source: str, translation: str, lengths: tuple[int, int], limit: int, unseen: Sequence[str] = (), lost: bool = False
) -> list[str]:
    """The kinds of remarks on a sentence and its translation, in the order of KINDS.

    lengths: subwords of source and translation. limit: most subwords of the translation, </s> counted. unseen: words of
    the source that the training text lacks. lost: whether the translation has other placeholders than the source.
    """
    letters, (before, after) = any(map(str.isalpha, source)), lengths
    fires = {
        "limit": before > 0 and after >= limit,
        "repeated": is_repeated(translation) and not is_repeated(source),
        "empty": letters and not translation,
        "short": before > FEW and 0 < after * LEAST_RATIO < before,
        "long": after > MOST_RATIO * before + FEW,
        "copied": letters and " " in source.strip() and source.split() == translation.split(),
        "lost": lost,
        "unseen": bool(unseen),
    }
    return [kind for kind in KINDS if fires[kind]]


class SeenWords:
    """The source words of a model's training text.

    path: the file that has them, lower-cased, read when it is first needed; without it all words count as seen. side:
    how lines become words.
    """

    def __init__(self, path: Path | None, side: Side):
        self.path, self.side = path, side

    @cached_property
    def words(self) -> frozenset[str]:
        """The words; empty without a file. Raises ValueError for a file that is not UTF-8."""
        try:
            return frozenset(read_lines(self.path)) if self.path and self.path.is_file() else frozenset()
        except UnicodeDecodeError:
            raise ValueError(f"{self.path} is damaged (not UTF-8). Copy the model folder again.") from None

    def unseen(self, line: str) -> list[str]:
        """The words of a line that the training text lacks, in their order. A word has a letter."""
        words = [token.removeprefix(SPACE) for token in self.side.tokens(line)] if self.words else []
        return [word for word in words if word.lower() not in self.words and any(map(str.isalpha, word))]


def is_repeated(text: str) -> bool:
    """Whether the same one to LONGEST words occur TIMES times in a row."""
    words = re.findall(r"\w+", text.lower())
    for size in range(1, LONGEST + 1):
        run = 0
        for word, earlier in zip(words[size:], words, strict=False):
            run = run + 1 if word == earlier else 0
            if run == (TIMES - 1) * size:
                return True
    return False


class RemarkCounts:
    """How many lines of a text have remarks of each kind, the numbers of the first ones, and the first unseen words.

    subwords: cuts lines into subwords. seen: the words of the model's training text. extra_length: of the search.
    """

    def __init__(self, subwords: Callable[[list[str]], list[list[str]]], seen: SeenWords, extra_length: int) -> None:
        self.subwords, self.seen, self.extra_length = subwords, seen, extra_length
        self.counts = dict.fromkeys(KINDS, 0)
        self.first: dict[str, list[int]] = {kind: [] for kind in KINDS}
        self.unseen: list[str] = []

    def add(self, number: int, pairs: Iterable[SentencePair]) -> None:
        """Count the remarks on the sentences of a line. number: of the line."""
        kinds: set[str] = set()
        for source, translation in pairs:
            unseen, (subwords,) = self.seen.unseen(source), self.subwords([source])
            lengths, limit = (len(subwords), len(translation.subwords)), max(1, len(subwords) + self.extra_length)
            lost = disagree(source, translation.text)
            kinds.update(remarks(source, translation.text, lengths, limit, unseen, lost))
            new = [word for word in dict.fromkeys(unseen) if word not in self.unseen]
            self.unseen += new[: SHOWN - len(self.unseen)]
        for kind in kinds:
            self.counts[kind] += 1
            self.first[kind] += [number] * (len(self.first[kind]) < SHOWN)

    def contents(self) -> dict[str, Any]:
        """The number of lines of each kind, and `describe`, as JSON values."""
        return {"lines": self.counts, "remarks": self.describe()}

    def describe(self, unit: str = "line") -> list[str]:
        """For each kind that occurs, a line: what is said, and the first numbers. unit: what a line is."""
        lines = []
        for kind, count in self.counts.items():
            if count:
                words = f" ({', '.join(self.unseen)})" if kind == "unseen" else ""
                places = f"{count:,} {unit}s: " if count > 1 else f"{unit} "
                numbers = ", ".join(map(str, self.first[kind])) + (", ..." if count > SHOWN else "")
                lines.append(f"{KINDS[kind]}{words}: {places}{numbers}")
        return lines
