"""The script of each character, such as Latin, Han or Thai; and words as runs of one script."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

import regex

# Unicode's scripts of living languages. A letter of another script counts as "Other".
SCRIPTS = (
    "Latin", "Cyrillic", "Greek", "Han", "Hiragana", "Katakana", "Hangul", "Arabic", "Hebrew", "Devanagari", "Bengali",
    "Gurmukhi", "Gujarati", "Oriya", "Tamil", "Telugu", "Kannada", "Malayalam", "Sinhala", "Thai", "Lao", "Tibetan",
    "Myanmar", "Khmer", "Georgian", "Armenian", "Ethiopic", "Mongolian", "Cherokee", "Syriac", "Thaana", "Bopomofo",
    "Tifinagh", "Javanese", "Balinese", "Canadian_Aboriginal", "Yi", "Nko", "Adlam", "Vai",
)  # fmt: skip
# For regex, with (?V1): a letter of a script that is written without spaces between words.
UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}]"
_OF_SCRIPT = [(name, regex.compile(rf"\p{{Script={name}}}")) for name in SCRIPTS]
JOINED = ""  # marks, joiners and letters of no script, such as the long-vowel mark of Katakana
DIGIT, SYMBOL = "digit", "symbol"


@lru_cache(maxsize=200_000)
def script_of(character: str) -> str:
    """The name of the script of a letter, DIGIT, SYMBOL, or JOINED for what belongs to the character before it."""
    category = unicodedata.category(character)
    if category in ("Nd", "Nl", "No"):
        return DIGIT
    if category.startswith("M") or category == "Cf":
        return JOINED
    if not category.startswith("L"):
        return SYMBOL
    name = next((name for name, pattern in _OF_SCRIPT if pattern.match(character)), "Other")
    return JOINED if name == "Other" and category == "Lm" else name


def runs(text: str) -> list[str]:
    """Cut a text into runs: letters of one script, or digits. Each other character is a run of its own.

    Marks and joiners stay with the character before them. Joined, the runs give the text.
    """
    cut: list[str] = []
    last = ""
    for character in text:
        kind = script_of(character)
        if cut and (kind == JOINED or (kind == last and kind != SYMBOL)):
            cut[-1] += character
        else:
            cut.append(character)
            last = kind
    return cut
