"""Codes of languages, and spaCy's tokenizers for them, without the models that spaCy offers for download."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from threading import Lock
from types import ModuleType
from typing import TYPE_CHECKING

from transformer.files import Mistake

if TYPE_CHECKING:
    from spacy.language import Language

CHINESE = ("cmn", "yue", "wuu", "lzh", "hak", "nan", "gan", "hsn")  # spaCy and sacreBLEU know zh
LONGEST_RUN = 100  # symbols in a row that spaCy gets: neither letters nor digits nor white space
_ALONE = Lock()
_LONG_RUN = re.compile(rf".*?(?:[^\w\s]|_){{{LONGEST_RUN}}}|.+", re.DOTALL)


@lru_cache(maxsize=1000)  # a server is asked for any code
def strip_region(language: str) -> str:
    """The language of a code by its meaning: zh-TW, zho and cmn -> zh; deu and de_DE -> de; sr@latin -> sr."""
    import langcodes  # imported here, since it takes a tenth of a second

    try:
        code = langcodes.standardize_tag(language.partition("@")[0]).partition("-")[0]
    except ValueError:  # no code: it stands for itself
        return language.lower()
    return "zh" if code in CHINESE else code


def is_code(language: str) -> bool:
    """Whether a language has this code, by ISO 639: cn, jp and cz are codes of countries."""
    import langcodes

    return langcodes.tag_is_valid(language)


def lower(text: str, language: str) -> str:
    """A text in lower case: I becomes ı in Turkish and Azerbaijani, and İ becomes i, without U+0307."""
    if strip_region(language) in ("tr", "az"):
        text = text.replace("I", "ı")
    return text.replace("İ", "i").lower()


def tokenizer(language: str) -> Language:
    """spaCy's blank pipeline for a language code. Its tokenizer is that of spaCy's models, without their download.

    Raises Mistake for a language that spaCy cannot split without other packages.
    """
    spacy, code = import_spacy(), strip_region(language)
    try:
        return spacy.blank(code)
    except (ImportError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise Mistake(f"Language {language!r} has no spaCy tokenizer ({reason}).") from None


def spacy_words(pipeline: Language, text: str) -> list[str]:
    """The words of a text by the tokenizer of a pipeline from `tokenizer`.

    spaCy takes time with the square of a run of symbols, so the text is cut after each LONGEST_RUN symbols in a row. It
    would remember each new word for ever, so it forgets all outside a zone, which one thread at a time may have.
    """
    parts = _LONG_RUN.findall(text) if len(text) > LONGEST_RUN else [text]
    with _ALONE, pipeline.memory_zone():
        return [token.text for part in parts for token in pipeline.tokenizer(part)]


def import_spacy() -> ModuleType:
    """spaCy, imported when it is first needed, since most stages only read subwords.

    A program of this project needs its tokenizers only, so spaCy is imported without torch and without its command line
    (367 modules). Any other program gets all of spaCy.
    """
    program = getattr(sys.modules["__main__"], "__spec__", None)  # of `python -m`
    if not program or program.name.partition(".")[0] not in ("transformer", "pipeline"):
        return import_module("spacy")
    command_line = {name: ModuleType(name) for name in ("spacy.cli", "spacy.cli.info")}
    command_line["spacy.cli.info"].info = None  # type: ignore[attr-defined] (all that spacy/__init__.py takes)
    collecting = gc.isenabled()
    gc.disable()  # modules are no garbage; looking for some takes a fifth of the time
    try:
        with _modules(torch=None), _modules(**command_line):
            import spacy
    finally:
        if collecting:
            gc.enable()
    return spacy


@contextmanager
def _modules(**modules: ModuleType | None) -> Iterator[None]:
    """In this block an import of one of these names gives its value; None: it fails. Imported modules stay."""
    added = {name: module for name, module in modules.items() if name not in sys.modules}
    sys.modules.update(added)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in added:
            del sys.modules[name]
