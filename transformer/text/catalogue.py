"""Catalogues of messages (PO): their entries, and which text and which numbers each plural form is for."""

from __future__ import annotations

import gettext
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from transformer.files import Mistake
from transformer.text.placeholders import disagree

if TYPE_CHECKING:
    from polib import MOEntry, POEntry, POFile

_RULE = re.compile(r"nplurals\s*=\s*(\d+)\s*;\s*plural\s*=\s*(.+?)\s*;?\s*$", re.DOTALL)
NUMBERS = range(1001)  # the rules repeat beyond this
LONGEST = 1_000  # characters of a rule
_OPEN = re.compile(  # a field whose text is not between two quotation marks
    r'^[^\S\n]*(?:#[~|]\|?[ \t]*)?(?=msg|")(?!(?:msg[a-z_]+(?:\[\d+\])?[ \t]*)?"(?:[^"\\\n]|\\.)*"[^\S\n]*$)',
    re.MULTILINE,
)
_CLOSE = re.compile(r"^(#[,|~])(?=[^\s|])", re.MULTILINE)  # marks that gettext reads without the space of polib
_BELL = re.compile(r"(\\\\)|\\a")  # an escape that polib does not know


class _Lines(str):
    """A catalogue for polib, which calls `splitlines`: only a line feed ends a line."""

    def splitlines(self, keepends: bool = False) -> list[str]:
        return self.split("\n")


def read_catalogue(text: str) -> POFile:
    """The entries of a catalogue, with their lines. Raises Mistake for a string without end, OSError as polib does."""
    import polib

    if broken := _OPEN.search(text):
        number = text.count("\n", 0, broken.start()) + 1
        raise Mistake(f"line {number}: a string without end, or a quotation mark inside without a backslash")
    text = _CLOSE.sub(r"\1 ", text)
    lines = _Lines(_BELL.sub(lambda match: match[1] or "\a", text) + "\n")  # polib takes a text without \n for a path
    return polib.pofile(lines)


@lru_cache(maxsize=8)
def numbers_of_forms(rule: str | None, forms: int) -> list[set[int]] | None:
    """For each form, the numbers that it is for; None if the header has no rule or a wrong one.

    rule: the header field Plural-Forms. forms: how many forms an entry has.
    """
    match = _RULE.match((rule or "")[:LONGEST])
    if not match or int(match[1]) != forms:
        return None
    try:
        plural = gettext.c2py(match[2])
        numbers: list[set[int]] = [set() for _ in range(forms)]
        for number in NUMBERS:
            numbers[plural(number)].add(number)
    except (ValueError, IndexError, ZeroDivisionError):
        return None
    return numbers


def source_of_form(entry: POEntry | MOEntry, form: int, rule: str | None, text: str = "") -> str:
    """What a plural form translates: msgid if it is for the number 1 (without a rule, form 0), else msgid_plural.

    A form for further numbers (1, 21, 31) translates msgid only if that has the placeholders of msgid_plural, or of
    `text`, the form's translation: "One file" names no number. A language with a single form has none for the singular.
    """
    numbers = numbers_of_forms(rule, forms := len(entry.msgstr_plural))
    if numbers and form < forms:
        singular, alone = 1 in numbers[form], numbers[form] == {1}
    else:
        singular, alone = form == 0, forms == 2
    alike = alone or any(other and not disagree(entry.msgid, other) for other in (entry.msgid_plural, text))
    return entry.msgid if forms > 1 and singular and alike else entry.msgid_plural
