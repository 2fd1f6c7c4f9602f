"""Tokens of a line and the marks in them, from which the line comes back without loss.

A token that follows a space or starts the line has `▁` in front: "▁Die ▁Datei ▁( neu )". Tokens and their subwords have
no other marks, so the line comes back when they are joined, unescaped and stripped once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

SPACE = "▁"
ESCAPE = "▂"

# No subword of a text may contain the space mark or equal a special. `mark_words` escapes these characters, `join`
# restores them.
_ESCAPES = {ESCAPE: ESCAPE + "0", SPACE: ESCAPE + "1", "<": ESCAPE + "2"}
_TO_ESCAPE = re.compile(rf"[{ESCAPE}{SPACE}]|<(?=(?:pad|unk|s|/s)>)")
_ESCAPED = re.compile(rf"{ESCAPE}[012]")
_UNESCAPES = {escaped: plain for plain, escaped in _ESCAPES.items()}


def mark_words(words: Sequence[str]) -> list[str]:
    """The tokens of the words between two spaces of a line."""
    tokens = [_TO_ESCAPE.sub(lambda match: _ESCAPES[match[0]], word) for word in words]
    return [SPACE + tokens[0], *tokens[1:]]


def join(subwords: Iterable[str]) -> str:
    """The line that a sequence of subwords or tokens spells."""
    line = "".join(subwords).replace(SPACE, " ")
    return _ESCAPED.sub(lambda match: _UNESCAPES[match[0]], line).strip(" ")
