"""The texts of HTML, to translate them and leave the rest as it is.

The text between two tags is translated by itself, so a sentence with a tag inside comes in parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html import escape, unescape

_REST = r"""(?:=\s*+"[^"<]*+"|=\s*+'[^'<]*+'|[^<>])*+>"""  # of a tag; no `<`, so that no part is looked through twice
_MARKUP = re.compile(  # what is not closed goes to the end, so that the rest is looked through once
    rf"<(script|style|code|pre|textarea)\b{_REST}.*?(?:</\1\s*+>|\Z)|<!--.*?(?:-->|\Z)|<[!?/a-z]{_REST}",
    re.DOTALL | re.IGNORECASE,
)


def split_html(html: str) -> tuple[list[str], Callable[[Sequence[str]], str]]:
    """The texts of HTML, without white space around them, and the function that puts translations in their places.

    The texts of scripts, styles and code are not among them.
    """
    spans, last = [], 0
    for begin, end in [*(match.span() for match in _MARKUP.finditer(html)), (len(html), len(html))]:
        text = html[last:begin]
        core = text.strip()
        if unescape(core).strip():
            start = last + text.index(core)
            spans.append((start, start + len(core)))
        last = end

    def fill(translations: Sequence[str]) -> str:
        parts, last = [], 0
        for (begin, end), translation in zip(spans, translations, strict=True):
            parts += [html[last:begin], escape(translation, quote=False)]
            last = end
        return "".join([*parts, html[last:]])

    return [" ".join(unescape(html[begin:end]).split()) for begin, end in spans], fill
