"""The words of a training text: how often each was seen, and which are abbreviations that spaCy does not know.

words.txt has a word and its count on each line. An abbreviation, such as "ul", has a second one: "ul . 57".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from transformer.files import Mistake, read_lines
from transformer.text.marks import SPACE

MOST_WORDS = 200_000  # of words.txt: 3 MB; rarer ones are almost never met
SHORT, RATHER_SHORT = 3, 5  # letters of what may be an abbreviation
FAR_MORE = 5  # times as often inside lines as at their ends


def read_counts(path: Path) -> Counter[str]:
    """A file with a word, a space and its count on each line, to these. Raises Mistake if it is damaged."""
    counts: Counter[str] = Counter()
    for number, line in enumerate(read_lines(path), start=1):
        word, _, count = line.rpartition(" ")
        if not (word and count.isdecimal() and len(count) < 16):
            raise Mistake(f"{path}:{number}: {line[:40]!r} is no word with its count. Copy the file again.")
        counts[word] = int(count)
    return counts


def ends_of_words(tokens: Sequence[str]) -> Iterator[str]:
    """The words of a line before a full stop and a space, with " ." behind each, and the last word of the line."""
    for word, stop, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if stop == "." and after.startswith(SPACE):
            yield f"{word.removeprefix(SPACE)} ."
    if last := next((token for token in reversed(tokens) if any(map(str.isalnum, token))), ""):
        yield last.removeprefix(SPACE)


def known_words(tokens: Counter[str], ends: Counter[str]) -> Counter[str]:
    """The MOST_WORDS most frequent words of the source side of train, without their marks, and its abbreviations.

    tokens: with their counts. ends: how often `ends_of_words` gave each. An abbreviation stands before a full stop
    inside lines often, for its length and its count, and far more often than at their ends; or is short, and stands
    nowhere else.
    """
    words: Counter[str] = Counter()
    for token, count in tokens.items():
        words[token.removeprefix(SPACE)] += count
    del words[""]  # before the number of a placeholder
    known = Counter({word: words[word] for word in sorted(words, key=lambda word: (-words[word], word))[:MOST_WORDS]})
    inside = sum(count for word, count in ends.items() if " " in word)
    weight = min(1.0, (ends.total() - inside) / max(1, inside))  # lines of many sentences have most ends inside
    for word, count in [*known.items()]:
        stops, letters = ends[f"{word} ."], count_letters(word)
        often = weight * stops >= max(1, letters - SHORT, count**0.5, FAR_MORE * ends[word])
        if letters and (often or (letters <= SHORT and stops == count)):
            known[f"{word} ."] = stops
    return known


def count_letters(word: str) -> int:
    """The number of letters of a word. Vowel signs are none. A word with digits has none."""
    return 0 if any(map(str.isdigit, word)) else sum(map(str.isalpha, word))


class SeenWords:
    """The source words of a model's training text.

    path: its words.txt, read when it is first needed; without it nothing is said of any word.
    """

    def __init__(self, path: Path | None):
        self.path = path

    @cached_property
    def counts(self) -> Counter[str]:
        """The words and abbreviations with their counts; empty without a file. Raises Mistake if it is damaged."""
        return read_counts(self.path) if self.path and self.path.is_file() else Counter()

    def times(self, word: str, end: str = "") -> int:
        """How often a word that may begin a sentence was seen, also with a small first letter. end: behind the word."""
        return sum(self.counts[form + end] for form in {word, word[:1].lower() + word[1:]})

    def unread(self, tokens: Sequence[str], times: int = 0) -> list[str]:
        """The words of a line that the training text lacks, or has only in another case, in their order.

        tokens: of the line. times: how often the training text has the words instead. Numbers are left out. The first
        word may begin with a capital where train has a small letter.
        """
        words = [token.removeprefix(SPACE) for token in tokens] if self.counts else []
        words = [word for word in words if word and not any(map(str.isdigit, word))]
        seen = [self.times(word) if place == 0 else self.counts[word] for place, word in enumerate(words)]
        return [word for word, count in zip(words, seen, strict=True) if count == times]

    def is_abbreviation(self, word: str) -> bool:
        """Whether a word is an abbreviation in the training text."""
        return self.times(word, " .") > 0

    def may_be_abbreviation(self, word: str, following: str) -> bool:
        """Whether a word before a full stop is an abbreviation, or may be one: train lacks it, and it is short.

        following: the next word. With a capital, and not in train in small letters, it is rather a name.
        """
        letters = count_letters(word)
        if self.is_abbreviation(word) or self.times(word) or not letters or not self.counts:
            return self.is_abbreviation(word)
        is_name = following[0].isupper() and following[0].lower() + following[1:] not in self.counts
        return letters <= (RATHER_SHORT if is_name else SHORT) or following[0].isdecimal()


NO_WORDS = SeenWords(None)
