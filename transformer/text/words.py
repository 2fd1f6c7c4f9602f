"""Lines to words: by spaCy's rules for a language, or by script. marks.join gives the line back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from transformer.files import Mistake
from transformer.text.characters import FORMS, normalise
from transformer.text.languages import is_code, lower, spacy_words, tokenizer
from transformer.text.marks import mark_words
from transformer.text.placeholders import NUMBERS, cut, protect, protect_pair, protect_target, restore
from transformer.text.scripts import runs

if TYPE_CHECKING:
    from spacy.language import Language

PIECES_IN_MEMORY = 500_000  # of a side, each with its tokens: about 180 MB
LONGEST_KNOWN = 100  # characters of a piece that is remembered
PIECES_OF_SERVER = 10_000  # the same for a process that never ends
_CODE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*")


def check_code(language: str) -> None:
    """Raise Mistake for what is no language code."""
    if not _CODE.fullmatch(language):
        raise Mistake(f"{language[:40]!r} is no language code. Use a code such as de, en or zh.")


def splitter_of(language: str) -> tuple[str, str]:
    """How the words of a language are split, spacy or unicode, and a remark that is empty for spacy.

    spacy: by spaCy's rules for the language. unicode: by script (scripts.runs), for languages that are written without
    spaces, and for those that spaCy does not know or splits by another package. Raises Mistake for what is no code.
    """
    check_code(language)
    try:
        if type(tokenizer(language).tokenizer).__name__ == "Tokenizer":
            return "spacy", ""
        why = "is written without spaces"
    except Mistake:
        why = "has no tokenizer in spaCy without other packages"
    if not is_code(language):
        why += ", and no code in ISO 639 (Chinese is zh, Japanese ja, Korean ko, Czech cs)"
    return "unicode", f"Language {language} {why}. Its words are runs of letters of one script, which BPE cuts further."


class Side:
    """How lines of one side, source or target, become tokens.

    language: its code. splitter: spacy or unicode, see `splitter_of`. normal_form: nfc (characters.normalise) or none.
    lowercase: whether lines are lower-cased first. placeholders: whether tokens have numbers in place of placeholders
    (placeholders.protect). Each piece of a line between two spaces is split by itself, so the tokens of a piece are
    remembered, for at most `most_pieces` pieces.
    """

    most_pieces = PIECES_IN_MEMORY

    def __init__(
        self,
        language: str,
        lowercase: bool,
        splitter: str = "spacy",
        normal_form: str = "nfc",
        placeholders: bool = False,
    ):
        if normal_form not in FORMS:
            raise Mistake(f"normalise={str(normal_form)[:40]!r} must be one of {', '.join(FORMS)}.")
        self.language, self.lowercase, self.splitter, self.normal_form = language, lowercase, splitter, normal_form
        if not isinstance(placeholders, bool):
            raise Mistake(f"placeholders={str(placeholders)[:40]!r} must be true or false.")
        self.placeholders = placeholders
        self._tokens: dict[str, list[str]] = {}  # of pieces met before

    @cached_property
    def _spacy(self) -> Language | None:
        """spaCy's pipeline, loaded at the first line: a translation splits no line of the target side."""
        return tokenizer(self.language) if self.splitter == "spacy" else None

    @classmethod
    def read_both(cls, description: Mapping[str, Any]) -> tuple[Side, Side]:
        """The source side and the target side that a model.json, corpus.json or text.json describes.

        Raises Mistake for what is no language code, no splitter or no normal form.
        """
        splitters = [description.get(f"{side}_splitter", "spacy") for side in ("source", "target")]
        for splitter in splitters:
            if splitter not in ("spacy", "unicode"):
                raise Mistake(f"The splitter {str(splitter)[:40]!r} must be spacy or unicode. Copy the file again.")
        for side in ("source", "target"):
            check_code(description[side])
        same = description.get("normalise", "none"), description.get("placeholders", False)
        source = cls(description["source"], description["lowercase_source"], splitters[0], *same)
        return source, cls(description["target"], description["lowercase"], splitters[1], *same)

    def text(self, line: str) -> str:
        """The characters of a line that tokens spell: in the normal form, and lower-cased if `lowercase`."""
        line = normalise(line, self.normal_form)
        return lower(line, self.language) if self.lowercase else line

    def protect(self, line: str) -> str:
        """A line with numbers in place of its placeholders, if this side has them."""
        return protect(line)[0] if self.placeholders else line

    def protect_pair(self, source: str, target: str) -> tuple[str, str]:
        """A training pair with numbers in place of the placeholders that both sides have, if this side has them."""
        return protect_pair(source, target) if self.placeholders else (source, target)

    def tokens(self, line: str) -> list[str]:
        """The tokens of a line, with `▁` before each token that follows a space. A run of white space is one space."""
        return self.split(self.protect(line))

    def protect_target(self, source: str, target: str) -> str:
        """A translation with numbers in place of the placeholders that its source has, if this side has them."""
        return protect_target(target, protect(source)[1]) if self.placeholders else target

    def restore(self, translation: str, line: str) -> str:
        """A translation with the placeholders of its source line in place of their numbers."""
        return restore(translation, protect(line)[1]) if self.placeholders else translation

    def split(self, line: str) -> list[str]:
        """The tokens of a line: the numbers of placeholders are tokens, other placeholders stay text."""
        known, line_tokens = self._tokens, []
        for piece in self.text(line).split():
            tokens = known.get(piece)
            if tokens is None:
                if len(known) >= self.most_pieces:
                    known.clear()
                tokens = self._split(piece)
                if len(piece) <= LONGEST_KNOWN:
                    known[piece] = tokens
            line_tokens += tokens
        return line_tokens

    def _split(self, piece: str) -> list[str]:
        """The tokens of a text without white space. The number of a placeholder is a token without `▁`."""
        words: list[str] = []
        for part in cut(piece) if self.placeholders else [piece]:
            number = self.placeholders and part in NUMBERS
            words += ["", part] if number and not words else [part] if number else self._words(part)
        return mark_words(words)

    def _words(self, text: str) -> list[str]:
        """The words of a text without white space."""
        return spacy_words(self._spacy, text) if self._spacy else runs(text)
