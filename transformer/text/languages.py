"""Codes of languages: de, en, zh-TW, jpn."""

from __future__ import annotations

# Codes of three letters of languages that are written without spaces, and those of two letters.
SHORT = {
    "zho": "zh",
    "chi": "zh",
    "cmn": "zh",
    "yue": "zh",
    "jpn": "ja",
    "kor": "ko",
    "tha": "th",
    "lao": "lo",
    "khm": "km",
    "mya": "my",
    "bur": "my",
    "bod": "bo",
    "tib": "bo",
}


def without_region(language: str) -> str:
    """The language of a code that may also have a region, or three letters: zh-TW -> zh, zho -> zh."""
    code = language.lower().replace("_", "-").partition("-")[0]
    return SHORT.get(code, code)
