"""Terms whose translation is given: in the source each becomes a placeholder, which a model that has them keeps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from transformer.files import Mistake, read_lines
from transformer.text.characters import normalise
from transformer.text.placeholders import NUMBERS, placeholders, spans

_MARKED = re.compile(r'<term id="(\d{1,9})"/>')


class Glossary:
    """Source terms with their translations, which are not inflected. The longest counts, with its case as typed."""

    def __init__(self, terms: Mapping[str, str]):
        """terms: source term -> its translation."""
        self.translations = [*terms.values()]
        self.numbers = {term: number for number, term in enumerate(terms)}
        longest_first = sorted(map(re.escape, terms), key=len, reverse=True)
        self._terms = re.compile(rf"(?<![\w&])(?:{'|'.join(longest_first)})(?!\w)")

    @classmethod
    def load(cls, path: Path) -> Glossary:
        """The glossary of a file: in each line a term, a tab and its translation. Raises Mistake with file and line."""
        terms: dict[str, str] = {}
        for number, line in enumerate(read_lines(path), start=1):
            if not line.strip():
                continue
            term, *translation = (normalise(part.strip(), "nfc") for part in line.removeprefix("\ufeff").split("\t"))
            if not term or len(translation) != 1 or not translation[0]:
                raise Mistake(f"{path}:{number}: {line[:40]!r} must be a term, a tab and its translation.")
            if kept := placeholders(term):
                raise Mistake(f"{path}:{number}: {term!r} has the placeholder {kept[0]!r}. Leave this term out.")
            if terms.setdefault(term, translation[0]) != translation[0]:
                raise Mistake(f"{path}:{number}: {term!r} has the translation {terms[term]!r} too. Leave one of them.")
        if not terms:
            raise Mistake(f"{path} has no terms. Write a term, a tab and its translation in each line.")
        return cls(terms)

    def mark(self, line: str) -> str:
        """A source line with a placeholder, 16 with its own, in place of each term that is outside these."""
        if _MARKED.search(line) or not set(NUMBERS).isdisjoint(line):  # whose placeholders stay as they are, too
            return line

        line = normalise(line, "nfc")
        taken = spans(line)
        free = iter(NUMBERS[len(taken) :])

        def mark_term(match: re.Match[str]) -> str:
            is_text = all(end <= match.start() or match.end() <= start for start, end in taken)
            return f'<term id="{self.numbers[match[0]]}"/>' if is_text and next(free, None) else match[0]

        return self._terms.sub(mark_term, line)

    def fill(self, line: str, translation: str) -> str:
        """The translation of a line of `mark` with the translations of its terms. line: before `mark`."""
        if _MARKED.search(line):
            return translation
        return _MARKED.sub(lambda match: self.translations[int(match[1])], translation)
