"""What reading a corpus and translating a file share of the formats that hold texts: SRT, TMX and XLIFF."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element

LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"  # an attribute
# The text of a cue: the lines after its number and times, up to an empty line or the next cue. Hours may be missing.
_TIMES = r"[ \t\ufeff]*(?:\d+:)?\d{1,2}:\d\d[,.]\d{1,3}[ \t]*-->.*\n"
_NEXT = rf"(?![ \t]*\d+[ \t]*\n{_TIMES}|{_TIMES})"
_BLANK = rf"(?:(?:[ \t]*\n)+{_NEXT}(?=[ \t]*\S))?"  # before the text
_CUE = re.compile(rf"^(?P<head>{_TIMES}{_BLANK})(?P<text>(?:{_NEXT}[ \t]*\S.*(?:\n|\Z))*)", re.MULTILINE)


def cues(text: str) -> list[re.Match[str]]:
    """The cues of a text whose lines end in \\n, each with the groups head and text: its lines, which may be none."""
    return [*_CUE.finditer(text)]


def local(element: Element) -> str:
    """The name of an element of XML without its namespace."""
    return element.tag.rpartition("}")[2]
