"""What reading a corpus and translating a file share of the formats that hold texts: SRT, TMX and XLIFF."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element

LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"  # an attribute
# The text of a cue: the lines after its number and its times, up to an empty line.
_CUE = re.compile(
    r"^(?P<head>[ \t]*\d+:\d\d:\d\d[,.]\d{1,3}[ \t]*-->.*\r?\n)(?P<text>(?:[ \t]*\S.*(?:\r?\n|\Z))*)", re.MULTILINE
)


def cues(text: str) -> list[re.Match[str]]:
    """The cues, each with the groups head, its line of times, and text, its lines, which may be none."""
    return [*_CUE.finditer(text)]


def local(element: Element) -> str:
    """The name of an element of XML without its namespace."""
    return element.tag.rpartition("}")[2]
