"""Codes of languages, and spaCy's tokenizers for them, without the models that spaCy offers for download."""

from __future__ import annotations

import re
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spacy.language import Language

LONGEST_RUN = 100  # symbols in a row that spaCy gets: neither letters nor digits nor white space
_LONG_RUN = re.compile(rf".*?(?:[^\w\s]|_){{{LONGEST_RUN}}}|.+", re.DOTALL)
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


def strip_region(language: str) -> str:
    """The language of a code that may also have a region, or three letters: zh-TW -> zh, zho -> zh."""
    code = language.lower().replace("_", "-").partition("-")[0]
    return SHORT.get(code, code)


def tokenizer(language: str) -> Language:
    """spaCy's blank pipeline for a language code. Its tokenizer is that of spaCy's models, without their download.

    Raises ValueError for a language that spaCy cannot split without other packages.
    """
    spacy = import_spacy()
    try:
        return spacy.blank(strip_region(language))
    except (ImportError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"Language {language!r} has no spaCy tokenizer ({reason}).") from None


def spacy_words(pipeline: Language, text: str) -> list[str]:
    """The words of a text by the tokenizer of a pipeline from `tokenizer`.

    spaCy takes time with the square of a run of symbols, so the text is cut after each LONGEST_RUN symbols in a row.
    """
    parts = _LONG_RUN.findall(text) if len(text) > LONGEST_RUN else [text]
    return [token.text for part in parts for token in pipeline.tokenizer(part)]


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
