"""Signs that a translation is wrong, found without a reference and counted per line."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import regex

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
    "once": "seen once in the training text",
}
LEAST_LOOP = 6  # subwords of a loop of parts of words, at least
MOST_RATIO, LEAST_RATIO = 3, 4  # times the subwords of the source, and of the translation
FEW_SUBWORDS = 10  # subwords, below which a ratio says little
STOCK = 4  # subwords, below which different lines may have one translation
MOST_SOURCES = 100_000  # lines whose translations are compared
SHOWN, LONGEST_PIECE = 8, 40  # line numbers and pieces; characters of a piece
_DIGITS = re.compile(r"\d+")
_FRACTION = regex.compile(r"\p{No}")
_THOUSANDS = re.compile(r"(?<=\d)[,.'’٬ \u00a0\u2009\u202f](?=(?:\d\d,)*\d{3}(?!\d))")  # also 1,00,000


def remarks_on(
    source: str, translation: Translation, lengths: tuple[int, int], limit: int, ends: int, **words: Iterable[str]
) -> tuple[Remark, ...]:
    """The remarks on a sentence and its translation, in the order of KINDS.

    lengths: subwords of source and translation. limit: most subwords of the translation, </s> counted. ends: how many
    sentences may end in the source. words: unread, once: those of the source.
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
        "lost": all(disagree(form(source), form(text)) for form in (str, without_marks)),
        "digits": all(digits(form(source)) != digits(form(text)) for form in (str, without_marks)),
    }
    found = [Remark(kind) for kind in KINDS if fires.get(kind)]
    pieces = {kind: tuple(piece[:LONGEST_PIECE] for piece in dict.fromkeys(some)) for kind, some in words.items()}
    return (*found, *(Remark(kind, some) for kind, some in pieces.items() if some))


def digits(text: str) -> Counter[str]:
    """The runs of digits of a text, in any script."""
    return Counter("".join(str(int(digit)) for digit in run) for run in _DIGITS.findall(text))


def without_marks(text: str) -> str:
    """A text without marks between thousands, and with fractions such as ½ spelt out."""
    return _THOUSANDS.sub("", _FRACTION.sub(lambda match: f" {unicodedata.normalize('NFKC', match[0])} ", text))


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


class RemarkCounts:
    """How many lines of a text have remarks of each kind, the numbers of the first ones, and the first pieces.

    places: the number that is shown for each line; default: its own.
    """

    def __init__(self, places: Sequence[int] = ()) -> None:
        self.places = places
        self.counts = dict.fromkeys(KINDS, 0)
        self.first: dict[str, list[int]] = {kind: [] for kind in KINDS}
        self.pieces: dict[str, list[str]] = defaultdict(list)  # kind -> the first pieces
        self.sources: dict[str, str] = {}  # translation -> the first source that it translates

    def add(self, number: int, pairs: Sequence[SentencePair]) -> None:
        """Count the remarks on the sentences of a line. number: of the line, from 1."""
        kinds = set()
        for remark in (remark for pair in pairs for remark in pair.translation.remarks):
            kinds.add(remark.kind)
            first = self.pieces[remark.kind]
            new = [piece for piece in remark.pieces if piece not in first]
            first += new[: SHOWN - len(first)]
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
                pieces = f" ({' '.join(first)})" if (first := self.pieces[kind]) else ""
                places = f"{count:,} lines: " if count > 1 else "line "
                numbers = ", ".join(map(str, self.first[kind])) + (", ..." if count > SHOWN else "")
                lines.append(f"{KINDS[kind]}{pieces}: {places}{numbers}")
        return lines
