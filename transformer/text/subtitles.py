"""The cues of subtitles in a text of the format SRT."""

from __future__ import annotations

import re

# The text of a cue: the lines after its number and its times, up to an empty line.
_CUE = re.compile(
    r"^(?P<head>[ \t]*\d+:\d\d:\d\d[,.]\d{1,3}[ \t]*-->.*\r?\n)(?P<text>(?:[ \t]*\S.*(?:\r?\n|\Z))*)", re.MULTILINE
)


def cues(text: str) -> list[re.Match[str]]:
    """The cues, each with the groups head, its line of times, and text, its lines, which may be none."""
    return [*_CUE.finditer(text)]
