"""Characters that look alike or cannot be seen: the normal form of a line, and the odd characters in one.

The normal form is Unicode's NFC, without the characters of INVISIBLE. U+200C and U+200D stay: Persian and the scripts
of India spell with them, and emoji are joined by them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

FORMS = ("nfc", "none")
# Soft hyphen, zero-width space, word joiner, byte-order mark, and the marks, embeddings and isolates of directions.
INVISIBLE = "\u00ad\u200b\u2060\ufeff\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_INVISIBLE = re.compile(f"[{INVISIBLE}]")
_HALF = re.compile("[\ud800-\udfff]")
ENTITY = r"&(?:#\d{1,7}|#x[0-9A-Fa-f]{1,6}|[A-Za-z]{2,8}\d{0,2});"  # of HTML
# UTF-8 that was read as Latin-1 or Windows-1252: "Ã¼" for "ü", "â€œ" for a quotation mark, "Ð°" for a Cyrillic letter.
_MOJIBAKE = re.compile("[ÂÃ][\u0080-\u00bfŒœŠšŸŽžƒˆ˜–—‘’‚“”„†‡•…‰‹›€™]|â€|[ÐÑ][\u0080-\u00bf]")
_CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x7f]")
# What is odd -> whether a line has it.
ODD: dict[str, Callable[[str], object]] = {
    "invisible": _INVISIBLE.search,
    "decomposed": lambda line: not unicodedata.is_normalized("NFC", line),
    "entity": re.compile(ENTITY).search,
    "replacement": lambda line: "\ufffd" in line,
    "mojibake": _MOJIBAKE.search,
    "control": _CONTROL.search,
}


def normalise(line: str, form: str) -> str:
    """A line in a form of FORMS: none leaves it as it is. The normal form of a normal form is itself."""
    if form == "none" or line.isascii():
        return line
    return unicodedata.normalize("NFC", _INVISIBLE.sub("", line))


def half_character(text: str) -> re.Match[str] | None:
    """The first half of a character in a text: a lone surrogate, which JSON may spell, and UTF-8 cannot hold."""
    return None if text.isascii() else _HALF.search(text)
