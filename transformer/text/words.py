"""Text and its subwords: words by spaCy, merges by subword-nmt, a vocabulary counted by torchtext; lossless.

A line becomes tokens; a token that follows a space, or opens the line, carries `▁`: "▁Die ▁Protokoll datei ▁kann".
Tokens become subwords without any continuation mark, so joining subwords, unescaping and one strip give the line back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from spacy.language import Language

SPACE = "▁"
ESCAPE = "▂"

# No subword of a text may look like the space mark or like a special: these characters are replaced on the way in.
_ESCAPES = {ESCAPE: ESCAPE + "0", SPACE: ESCAPE + "1", "<": ESCAPE + "2"}
_TO_ESCAPE = re.compile(rf"[{ESCAPE}{SPACE}]|<(?=(?:pad|unk|s|/s)>)")
_ESCAPED = re.compile(rf"{ESCAPE}[012]")
_UNESCAPES = {escaped: plain for plain, escaped in _ESCAPES.items()}


def tokenizer(language: str) -> Language:
    """spaCy's blank pipeline of a language: the tokenizer of its downloadable models, without a download.

    Raises ValueError for a language that spaCy does not know.
    """
    import spacy  # here, since it takes two seconds, and most stages only meet subwords

    try:
        return spacy.blank(language)
    except (ImportError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"language {language!r} has no spaCy tokenizer; use a code like de or en ({reason})") from None


def tokenise(line: str, language: Language, lowercase: bool = False) -> list[str]:
    """The tokens of a line, a `▁` before each that follows a space. Every kind of white space counts as one space."""
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
    """How lines of one side become tokens."""

    language: Language  # of `tokenizer`
    lowercase: bool

    @classmethod
    def of(cls, card: Mapping[str, Any]) -> tuple[Side, Side]:
        """Source and target side, by what a model folder or corpus says of itself."""
        lowercase = card["lowercase"]
        source = cls(tokenizer(card["source"]), card.get("lowercase_source", lowercase))  # older folders have one case
        return source, cls(tokenizer(card["target"]), lowercase)

    def tokens(self, line: str) -> list[str]:
        """See `tokenise`."""
        return tokenise(line, self.language, self.lowercase)


def join(subwords: Iterable[str]) -> str:
    """The line that a sequence of subwords (or tokens) spells."""
    line = "".join(subwords).replace(SPACE, " ")
    return _ESCAPED.sub(lambda found: _UNESCAPES[found[0]], line).strip(" ")
