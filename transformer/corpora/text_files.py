"""One text file to checked lines: plain or compressed, with line feeds as the only line ends. Errors name the place."""

from __future__ import annotations

import gzip
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from transformer.files import Mistake, decode_line

COMPRESSED = ".gz"
LONGEST_LINE = 1_000_000  # bytes
# What str.splitlines, and tools like it, take for line ends beside the line feed.
_OTHER_ENDS = re.compile("\r(?!\n|$)|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")


class Separator(NamedTuple):
    """A character that some tools take for a line end."""

    line: int
    character: str


@dataclass
class Lines:
    """The lines of a text, counted while they are read.

    name: of the file, for messages. opened: opens its bytes. expected: the number of lines by the manifest.
    separators: how many other line ends were read; first: the first of them.
    """

    name: str
    opened: Callable[[], AbstractContextManager[Iterable[bytes]]]
    expected: int | None = None
    count: int = 0
    separators: int = 0
    first: Separator | None = field(default=None)

    def __iter__(self) -> Iterator[str]:
        """The lines without their line feed; other white space (\\r, \\x85, U+2028, ...) becomes a space.

        A byte-order mark at the start is removed with a warning. Raises Mistake with file, line and character for a
        NUL character or invalid UTF-8, and for a file that is damaged.
        """
        self.count = self.separators = 0
        try:
            with self.opened() as file:
                for line in file:
                    self.count += 1
                    yield self._check(line.removesuffix(b"\n"))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise Mistake(f"{self.name} is damaged after line {self.count} ({error}). Copy it again.") from None
        if self.expected not in (None, self.count):
            raise Mistake(
                f"{self.name} has {self.count} lines, but its manifest in corpora/ says "
                f"{self.expected}. Correct that number."
            )

    def _check(self, line: bytes) -> str:
        """A line of bytes as text."""
        if self.count == 1 and line.startswith(b"\xef\xbb\xbf"):
            print(f"{self.name}: removed the byte-order mark at its start", file=sys.stderr)
            line = line[3:]
        text = decode_line(line, self.name, self.count, LONGEST_LINE)
        if ends := _OTHER_ENDS.findall(text):
            self.separators += len(ends)
            self.first = self.first or Separator(self.count, ends[0])
        return " ".join(text.split())


def plain_name(path: Path) -> str:
    """The name of a file in small letters, without the ending of its compression."""
    return path.name.lower().removesuffix(COMPRESSED)


@contextmanager
def open_file(path: Path) -> Iterator[Iterator[bytes]]:
    """The lines of a file; those of a .gz file are decompressed on the way.

    A line that is longer than LONGEST_LINE is cut, and `decode_line` refuses it. Raises Mistake for what
    is no regular file: a pipe or a device may have no end.
    """
    if not path.is_file():
        raise Mistake(f"{path} is no regular file. Put the text itself there.")
    with gzip.open(path) if path.suffix.lower() == COMPRESSED else open(path, "rb") as file:
        yield iter(lambda: file.readline(LONGEST_LINE + 2), b"")


def lines_of(path: Path) -> Lines:
    """The lines of a file on disk, plain or compressed."""
    return Lines(str(path), lambda: open_file(path))


def check_counts(source: Lines, target: Lines) -> None:
    """Raise Mistake if two files that were read to their ends have unequal numbers of lines, with a likely cause."""
    if source.count == target.count:
        return
    more, fewer = (source, target) if source.count > target.count else (target, source)
    difference = more.count - fewer.count
    hint = ""
    if fewer.first and fewer.separators == difference:
        hint = (
            f" {fewer.name} has {difference} characters that some tools take for line ends (the first: "
            f"U+{ord(fewer.first.character):04X} in line {fewer.first.line}), exactly the difference: perhaps such a "
            f"tool made {more.name}."
        )
    raise Mistake(
        f"{more.name} has {more.count} lines and {fewer.name} {fewer.count}, {difference} fewer. Line n of one file "
        f"must translate line n of the other.{hint}"
    )
