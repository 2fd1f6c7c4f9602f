"""Lines as people type them: forms in which a model that was trained on edited text meets them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import regex

from transformer.files import sha256_text
from transformer.text.placeholders import protect, restore
from transformer.text.variants import swapped

LINES = 300  # of a test set that are written in each form
NO_MARK = "no final mark"
_MARK = regex.compile(r"\s*[\p{Sentence_Terminal}…]+$")
_WORD = regex.compile(r"\p{L}[\p{L}\p{M}'’]*")


def without_mark(line: str) -> str:
    """A line without its final mark."""
    return _MARK.sub("", line)


FORMS: dict[str, Callable[[str], str]] = {  # what is changed -> the line; placeholders and addresses stay
    "first letter small": lambda line: line[:1].lower() + line[1:],
    NO_MARK: without_mark,
    "ALL CAPITALS": str.upper,
    "Title Case": lambda line: _WORD.sub(lambda word: word[0][0].upper() + word[0][1:], line),
    "small letters": str.lower,
    "two letters swapped": lambda line: swapped(line, int(sha256_text(line), 16)),
}


def forms_of(lines: Sequence[str]) -> dict[str, list[str]]:
    """Lines in each form. A form that changes none of them is left out, such as capitals in a script without case."""
    first, forms = [protect(line) for line in lines], {}
    for name, form in FORMS.items():
        changed = [restore(form(line), values) for line, values in first]
        if changed != [*lines]:
            forms[name] = changed
    return forms
