"""Lines to words by spaCy's tokenizers, and back without loss.

A line becomes tokens. A token that follows a space or starts the line has `▁` in front: "▁Die ▁Datei ▁( neu )". Tokens
and their subwords have no other marks, so the line comes back when they are joined, unescaped and stripped once.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from spacy.language import Language

SPACE = "▁"
ESCAPE = "▂"

# No subword of a text may contain the space mark or equal a special. `tokenise` escapes these characters, `join`
# restores them.
_ESCAPES = {ESCAPE: ESCAPE + "0", SPACE: ESCAPE + "1", "<": ESCAPE + "2"}
_TO_ESCAPE = re.compile(rf"[{ESCAPE}{SPACE}]|<(?=(?:pad|unk|s|/s)>)")
_ESCAPED = re.compile(rf"{ESCAPE}[012]")
_UNESCAPES = {escaped: plain for plain, escaped in _ESCAPES.items()}


def tokenizer(language: str) -> Language:
    """spaCy's blank pipeline for a language code. Its tokenizer is that of spaCy's models, without their download.

    Raises ValueError for a language that spaCy does not support.
    """
    spacy = import_spacy()
    try:
        return spacy.blank(language)
    except (ImportError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"Language {language!r} has no spaCy tokenizer ({reason}). Use a code like de, en.") from None


def import_spacy() -> ModuleType:
    """spaCy, imported when it is first needed, since most stages only read subwords.

    thinc, below spaCy, would import torch where it is installed, which takes two seconds; a tokenizer needs none.
    """
    without_torch = "torch" not in sys.modules
    if without_torch:
        sys.modules["torch"] = None  # type: ignore[assignment] (Python then raises ImportError for torch)
    try:
        import spacy
    finally:
        if without_torch:
            del sys.modules["torch"]
    return spacy


def tokenise(line: str, language: Language, lowercase: bool = False) -> list[str]:
    """The tokens of a line, with `▁` before each token that follows a space. A run of white space is one space."""
    line = " ".join(line.split())
    if lowercase:
        line = " ".join(line.lower().split())
    tokens, after_space = [], True
    for token in language.tokenizer(line):
        word = _TO_ESCAPE.sub(lambda found: _ESCAPES[found[0]], token.text)
        tokens.append(SPACE + word if after_space else word)
        after_space = bool(token.whitespace_)
    return tokens


class Side(NamedTuple):
    """How lines of one side, source or target, become tokens.

    language: a pipeline made by `tokenizer`. lowercase: whether lines are lower-cased first.
    """

    language: Language
    lowercase: bool

    @classmethod
    def of(cls, description: Mapping[str, Any]) -> tuple[Side, Side]:
        """The source side and the target side that a model.json or corpus.json describes."""
        lowercase = description["lowercase"]
        lowercase_source = description.get("lowercase_source", lowercase)  # older folders have one setting for both
        source = cls(tokenizer(description["source"]), lowercase_source)
        return source, cls(tokenizer(description["target"]), lowercase)

    def tokens(self, line: str) -> list[str]:
        """The tokens of a line; see `tokenise`."""
        return tokenise(line, self.language, self.lowercase)


def join(subwords: Iterable[str]) -> str:
    """The line that a sequence of subwords or tokens spells."""
    line = "".join(subwords).replace(SPACE, " ")
    return _ESCAPED.sub(lambda found: _UNESCAPES[found[0]], line).strip(" ")
