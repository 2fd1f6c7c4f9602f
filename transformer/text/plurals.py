"""Plural forms of a catalogue (PO): which numbers each form is for, by the rule in its header."""

from __future__ import annotations

import gettext
import re
from functools import lru_cache

_RULE = re.compile(r"nplurals\s*=\s*(\d+)\s*;\s*plural\s*=\s*(.+?)\s*;?\s*$", re.DOTALL)
NUMBERS = range(1001)  # the rules repeat beyond this
LONGEST = 1_000  # characters of a rule


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


def is_singular(form: int, forms: int, numbers: list[set[int]] | None) -> bool:
    """Whether a form translates the singular. It is the form for the number 1 or, without a rule, form 0.

    A language with a single form has none for the singular.
    """
    return forms > 1 and (1 in numbers[form] if numbers and form < forms else form == 0)
