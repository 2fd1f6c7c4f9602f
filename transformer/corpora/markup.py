"""The texts in the files of IWSLT (TED) and WMT: marked up as XML or SGML, or plain lines among lines of tags."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import BinaryIO

# The tags of the lines in train.tags.* that are no text.
TED_TAGS = ("url", "keywords", "speaker", "talkid", "title", "description", "reviewer", "translator", "doc", "refset",
            "srcset")  # fmt: skip
_BLOCK = 1 << 16  # bytes


class _Segments(HTMLParser):
    """Collects the text of each <seg>. HTMLParser also reads SGML, decodes entities, and loads no other file."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self.count = 0
        self._text: list[str] | None = None  # of the segment that is open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "seg":
            self._text = []

    def handle_endtag(self, tag: str) -> None:
        if tag == "seg" and self._text is not None:
            self.found.append("".join(self._text))
            self.count += 1
            self._text = None

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text.append(data)

    def lines(self) -> Iterator[bytes]:
        """The segments that were found since the last call, each as a line."""
        found, self.found = self.found, []
        for segment in found:
            yield " ".join(segment.split()).encode("utf-8") + b"\n"


def segments(file: BinaryIO) -> Iterator[bytes]:
    """The text of each <seg> of an XML or SGML file, as a line that ends in a line feed."""
    parser = _Segments()
    decode = codecs.getincrementaldecoder("utf-8")().decode
    while block := file.read(_BLOCK):
        try:
            parser.feed(decode(block))
        except UnicodeDecodeError as error:
            raise ValueError(f"invalid UTF-8 near <seg> {parser.count} ({error.reason})") from None
        yield from parser.lines()
    parser.close()
    yield from parser.lines()


class _Tags(HTMLParser):
    """The first tag of a line."""

    def __init__(self) -> None:
        super().__init__()
        self.first = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.first = self.first or tag


def untagged(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a train.tags file that are text: those that do not begin with one of TED_TAGS."""
    for line in file:
        if line.lstrip().startswith(b"<"):
            parser = _Tags()
            parser.feed(line.decode("utf-8", errors="replace"))
            if parser.first in TED_TAGS or line.lstrip().startswith(b"</"):
                continue
        yield line
