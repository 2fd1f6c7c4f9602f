"""Signs that a translation is wrong, found without a reference and counted per line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from transformer.files import read_lines
from transformer.inference.translation import Remark, SentencePair, Translation, join_translations
from transformer.text.marks import SPACE
from transformer.text.placeholders import disagree
from transformer.text.sentences import count_ends

KINDS = {  # kind -> what is said of a translation
    "limit": "cut at the length limit",
    "repeated": "the same again and again",
    "empty": "empty",
    "short": "far shorter than the source",
    "long": "far longer than the source",
    "copied": "a copy of the source",
    "ends": "fewer sentences than in the source",
    "lost": "without a placeholder, address or large number of the source, or with another",
    "digits": "other digits than in the source",
    "same": "the translation of another line too",
    "unread": "not in the training text",
}
LEAST_LOOP = 6  # subwords of a loop of parts of words, at least
MOST_RATIO, LEAST_RATIO = 3, 4  # times the subwords of the source, and of the translation
FEW_SUBWORDS = 10  # subwords, below which a ratio says little
STOCK = 4  # subwords, below which different lines may have one translation
MOST_SOURCES = 100_000  # lines whose translations are compared
SHOWN, LONGEST_PIECE = 8, 40  # line numbers and pieces; characters of a piece
_DIGITS = re.compile(r"\d+")


def remarks_on(
    source: str, translation: Translation, lengths: tuple[int, int], limit: int, ends: int, unread: Sequence[str] = ()
) -> tuple[Remark, ...]:
    """The remarks on a sentence and its translation, in the order of KINDS.

    lengths: subwords of source and translation. limit: most subwords of the translation, </s> counted. ends: how many
    sentences may end in the source. unread: what of the source the training text lacks.
    """
    letters, (before, after), text = any(map(str.isalpha, source)), lengths, translation.text
    fires = {
        "limit": before > 0 and after >= limit,
        "repeated": repeats_itself(source, translation.subwords),
        "empty": letters and not text,
        "short": before > FEW_SUBWORDS and 0 < after * LEAST_RATIO < before,
        "long": after > MOST_RATIO * before + FEW_SUBWORDS,
        "copied": letters and " " in source.strip() and source.split() == text.split(),
        "ends": 1 < ends > count_ends(text),
        "lost": disagree(source, text),
        "digits": digits(source) != digits(text),
    }
    found = [Remark(kind) for kind in KINDS if fires.get(kind)]
    pieces = tuple(piece[:LONGEST_PIECE] for piece in dict.fromkeys(unread))
    return (*found, Remark("unread", pieces)) if pieces else tuple(found)


def digits(text: str) -> Counter[str]:
    """The runs of digits of a text, in any script."""
    return Counter("".join(str(int(digit)) for digit in run) for run in _DIGITS.findall(text))


def repeats_itself(source: str, subwords: Sequence[str]) -> bool:
    """Whether the subwords of a translation are a loop, and its source is none."""
    return is_loop(subwords) and not is_loop([f"{SPACE}{word}" for word in source.split()])


def is_loop(subwords: Sequence[str]) -> bool:
    """Whether a group of subwords occurs three times in a row.

    Groups that start inside a word must fill LEAST_LOOP subwords.
    """
    for period in range(1, len(subwords) // 3 + 1):
        run = period
        for place in range(period, len(subwords)):
            run = run + 1 if subwords[place] == subwords[place - period] else period
            if run >= 3 * period and (run >= LEAST_LOOP or subwords[place - period + 1].startswith(SPACE)):
                return True
    return False


class SeenWords:
    """The source words of a model's training text.

    path: the file that has them, read when it is first needed; without it all words count as seen.
    """

    def __init__(self, path: Path | None):
        self.path = path

    @cached_property
    def words(self) -> frozenset[str]:
        """The words; empty without a file."""
        return frozenset(read_lines(self.path)) if self.path and self.path.is_file() else frozenset()

    def unread(self, tokens: Iterable[str]) -> list[str]:
        """The words of a line that the training text lacks, or has only in another case, in their order.

        tokens: of the line. Numbers are left out. The first word may begin with a capital where train has a small
        letter.
        """
        words = [token.removeprefix(SPACE) for token in tokens] if self.words else []
        words = [word for word in words if word and not any(map(str.isdigit, word))]
        return [
            word
            for place, word in enumerate(words)
            if word not in self.words and (place or word[0].lower() + word[1:] not in self.words)
        ]


class RemarkCounts:
    """How many lines of a text have remarks of each kind, the numbers of the first ones, and the first pieces unread.

    places: the number that is shown for each line; default: its own.
    """

    def __init__(self, places: Sequence[int] = ()) -> None:
        self.places = places
        self.counts = dict.fromkeys(KINDS, 0)
        self.first: dict[str, list[int]] = {kind: [] for kind in KINDS}
        self.unread: list[str] = []
        self.sources: dict[str, str] = {}  # translation -> the first source that it translates

    def add(self, number: int, pairs: Sequence[SentencePair]) -> None:
        """Count the remarks on the sentences of a line. number: of the line, from 1."""
        kinds = set()
        for remark in (remark for pair in pairs for remark in pair.translation.remarks):
            kinds.add(remark.kind)
            new = [piece for piece in remark.pieces if piece not in self.unread]
            self.unread += new[: SHOWN - len(self.unread)]
        source, text = " ".join(pair.source for pair in pairs), join_translations(pairs)
        if repeats_itself(source, [piece for pair in pairs for piece in pair.translation.subwords]):
            kinds.add("repeated")
        letters = "".join(filter(str.isalpha, source.lower()))
        if (
            sum(len(pair.translation.subwords) for pair in pairs) >= STOCK
            and len(self.sources) < MOST_SOURCES
            and self.sources.setdefault(text, letters) != letters
        ):
            kinds.add("same")
        place = self.places[number - 1] if self.places else number
        for kind in kinds:
            self.counts[kind] += 1
            self.first[kind] += [place] * (len(self.first[kind]) < SHOWN)

    def contents(self) -> dict[str, Any]:
        """The number of lines of each kind, and `describe`, as JSON values."""
        return {"lines": self.counts, "remarks": self.describe()}

    def describe(self) -> list[str]:
        """For each kind that occurs, a line: what is said, and the first numbers."""
        lines = []
        for kind, count in self.counts.items():
            if count:
                pieces = f" ({' '.join(self.unread)})" if kind == "unread" else ""
                places = f"{count:,} lines: " if count > 1 else "line "
                numbers = ", ".join(map(str, self.first[kind])) + (", ..." if count > SHOWN else "")
                lines.append(f"{KINDS[kind]}{pieces}: {places}{numbers}")
        return lines
