"""The texts in the files of IWSLT (TED) and WMT: marked up as XML or SGML, or plain lines among lines of tags."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from html.parser import HTMLParser
from typing import Any

from transformer.corpora.text_files import LONGEST_LINE
from transformer.files import Mistake, decode_line, is_bug

# The tags of the lines in train.tags.* that are no text.
TED_TAGS = (
    "url",
    "keywords",
    "speaker",
    "talkid",
    "title",
    "description",
    "reviewer",
    "translator",
    "doc",
    "refset",
    "srcset",
)
_BLOCK = 1 << 16  # characters, at least, that are parsed at once
_LONGEST = 1 << 18  # characters of a tag or comment, which HTMLParser reads anew with each block until it ends


class _Segments(HTMLParser):
    """Collects the text of each <seg>. HTMLParser also reads SGML, decodes entities, and loads no other file."""

    def __init__(self, name: str) -> None:
        super().__init__(convert_charrefs=True)
        self.name = name  # of the file
        self.texts: list[str] = []
        self._text: list[str] | None = None  # of the segment that is open
        self._start = 0  # its line

    def set_cdata_mode(self, *_: Any, **__: Any) -> None:
        """<script> and <style> are tags like others: HTMLParser would take all that follows for a program."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "seg":
            if self._text is not None:
                raise Mistake(f"a <seg>, but that of line {self._start} has no </seg>")
            self._text, self._start = [], self.getpos()[0]

    def handle_endtag(self, tag: str) -> None:
        if tag == "seg":
            if self._text is None:
                raise Mistake("a </seg> without <seg>")
            self.texts.append("".join(self._text))
            self._text = None

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text.append(data)

    def unknown_decl(self, data: str) -> None:
        if data.startswith("CDATA["):
            self.handle_data(data.removeprefix("CDATA["))

    def lines(self, text: str, last: bool = False) -> Iterator[bytes]:
        """The segments that end in `text`, each as a line. last: the file ends with it."""
        try:
            self.feed(text)
            if "<" in self.rawdata and (last or len(self.rawdata) > _LONGEST):  # rawdata: from what has no end yet
                raise Mistake("a tag or comment without end")
            if last:
                self.close()
                if self._text is not None:
                    raise Mistake(f"the file ends, but the <seg> of line {self._start} has no </seg>")
        except (AssertionError, ValueError) as error:  # HTMLParser's for `<![x`, and for &# with 5,000 digits
            if is_bug(error):
                raise
            position = f"{self.name}:{self.getpos()[0]}"
            raise Mistake(f"{position}: wrong markup: {error}. Correct it, or get the file again.") from None
        texts, self.texts = self.texts, []
        for segment in texts:
            yield " ".join(segment.split()).encode("utf-8") + b"\n"


def segments(file: Iterable[bytes], name: str) -> Iterator[bytes]:
    """The text of each <seg> of an XML or SGML file, as a line that ends in a line feed.

    name: of the file. Raises Mistake with file and line for text that is not UTF-8, and for wrong markup.
    """
    parser, block, size = _Segments(name), [], 0
    for number, line in enumerate(file, start=1):
        block.append(decode_line(line, name, number, LONGEST_LINE))
        size += len(line)
        if size >= _BLOCK:
            yield from parser.lines("".join(block))
            block, size = [], 0
    yield from parser.lines("".join(block), last=True)


class _Tags(HTMLParser):
    """The first tag of a line."""

    def __init__(self) -> None:
        super().__init__()
        self.first = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.first = self.first or tag


def text_lines(file: Iterable[bytes], name: str) -> Iterator[bytes]:
    """The lines of a train.tags file that are text: those that do not begin with one of TED_TAGS.

    name: of the file. Raises Mistake with file, line and character for text that is not UTF-8.
    """
    for number, line in enumerate(file, start=1):
        text = decode_line(line, name, number, LONGEST_LINE).removeprefix("\ufeff").lstrip()
        if text.startswith("<"):
            parser = _Tags()
            with suppress(AssertionError, ValueError):  # what is wrong markup is text
                parser.feed(text)
            if parser.first in TED_TAGS or text.startswith("</"):
                continue
        yield line
