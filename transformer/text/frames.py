"""What stays around a text when it is translated: a bullet or a dash in front, a pair of tags, quotes or brackets."""

from __future__ import annotations

from typing import NamedTuple

import regex

_BULLET = regex.compile(
    r"""\s*(?: [\p{Pd}−]{1,3}>? | [+*>»•·‣∙⁃→⇒❯\uf0b7] | \p{So}[\p{So}\p{Sk}\p{M}\u200d]* | \#{1,6} | \[[ xX]\]
             | \(?(?: \d{1,3}\.? | \p{L} )\) | [(\[][^\p{L}\s)\]][^\p{L})\]]*[)\]] )
        (?: \s+(?=\S) | (?<=[–—―•‣·●▪])(?=\p{L}) )""",
    regex.VERBOSE,
)
_TAGGED = regex.compile(r"\s*<([A-Za-z][\w:-]*)(?: [^<>]*)?>(.*)</\1>\s*", regex.DOTALL)
# What opens -> what may close. No braces: {name} is a placeholder.
_PAIRS = {'"': '"', "'": "'", "“": "”", "„": '“”"', "”": "”", "‚": "‘’", "‘": "’"}
_PAIRS |= {"«": "»", "»": "«", "‹": "›", "›": "‹", "「": "」", "『": "』", "《": "》", "〈": "〉"}
_PAIRS |= {"(": ")", "[": "]", "（": "）", "【": "】"}
MOST = 10  # frames around one another that are seen


class Frame(NamedTuple):
    """A text in three parts. core: what is translated."""

    before: str
    core: str
    after: str = ""

    @property
    def text(self) -> str:
        """The whole text."""
        return self.before + self.core + self.after


def frame(text: str) -> Frame:
    """A text to what is translated of it, and what stays before and after it."""
    before, core, after = "", text, ""
    for _ in range(MOST):
        start, end = _inside(core)
        if end - start == len(core):
            break
        before, core, after = before + core[:start], core[start:end], core[end:] + after
    return Frame(before, core, after)


def _inside(text: str) -> tuple[int, int]:
    """Where the text inside the outer frame of a text starts and ends; all of it without one."""
    if bullet := _BULLET.match(text):
        return bullet.end(), len(text)
    tagged = _TAGGED.fullmatch(text)
    if tagged and f"</{tagged[1]}" not in tagged[2]:
        return tagged.span(2)
    stripped = text.strip().rstrip(".!?…,;:")  # what ends a sentence may stand behind the closing mark
    closing = _PAIRS.get(stripped[:1], "") if stripped[1:] else ""
    marks = {*stripped[:1], *closing}
    if closing and stripped[-1] in closing and not marks & {*stripped[1:-1].strip("".join(marks))}:
        start = text.index(core := stripped[1:-1].strip(), text.index(stripped))
        return start, start + len(core)
    return 0, len(text)
