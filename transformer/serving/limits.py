"""The limits of one request to a server that translates: server.py, and the model behind MLflow's (mlflow_model.py).

A request is refused before work is spent on it, and ended when it takes too long.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from transformer.decoding.config import SEARCH_OPTIONS, SearchConfig

MAX_LINES, MAX_SUBWORDS = 1000, 1000  # of a request, and of a line
# Longer lines and words are refused before they are cut into subwords.
MAX_CHARACTERS, MAX_WORD = 10 * MAX_SUBWORDS, 2 * MAX_SUBWORDS  # spaCy takes 8 s for a word of 10,000 brackets
MAX_BYTES = 1 << 20  # of a request to server.py
SECONDS = 30  # from the arrival of a request to its answer


class OutOfTime(Exception):
    """A request was ended because it took too long. Its text is for the sender."""


class Deadline:
    """The time until which one request may be worked on. Call it to check. seconds: from now."""

    def __init__(self, seconds: float):
        self.seconds, self.end = seconds, time.monotonic() + seconds

    def __call__(self) -> None:
        """Raise OutOfTime if the time is over."""
        if time.monotonic() > self.end:
            raise OutOfTime(
                f"The request took longer than {self.seconds:g} s and was ended. Send fewer or shorter lines, or a "
                "smaller beam_size or extra_length."
            )


def check_options(params: dict[str, Any]) -> dict[str, Any]:
    """The options of the search among `params`. Raises ValueError for a wrong or too wide one: see SearchConfig."""
    for name in SEARCH_OPTIONS:
        if not isinstance(params[name], (int, float)):
            raise ValueError(f"{name}={params[name]} must be a number. Nothing was translated.")
    options = {name: params[name] for name in SEARCH_OPTIONS}
    SearchConfig(**options)
    return options


def check_lines(lines: Sequence[str], name: str = "text") -> None:
    """Raise ValueError for more lines than a request may have, and for one that `check_line` refuses.

    name: what an error calls one of them.
    """
    if len(lines) > MAX_LINES:
        raise ValueError(f"{len(lines):,} {name}s are too many. A request may have {MAX_LINES:,}: send them in parts.")
    for number, line in enumerate(lines, start=1):
        check_line(name_of(number, len(lines), name), line)


def name_of(number: int, count: int, name: str = "text") -> str:
    """What an error calls one of `count` lines: the text, line 3."""
    return f"the {name}" if count == 1 else f"{name} {number:,}"


def check_line(name: str, line: str) -> None:
    """Raise ValueError for a line that is not Unicode or is too long. The line is not cut into subwords for this."""
    if len(line) > MAX_CHARACTERS:
        raise ValueError(f"{name} has {len(line):,} characters; the server takes {MAX_CHARACTERS:,}: cut it")
    try:
        line.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} is not text: {line[error.start]!r} at character {error.start + 1}") from None
    words = line.split()
    if (longest := max(map(len, words), default=0)) > MAX_WORD:
        raise ValueError(f"{name} has a word of {longest:,} characters; the server takes {MAX_WORD:,}: cut it")
    check_subwords(name, len(words), "words")  # a word has at least one subword


def check_subwords(name: str, count: int, unit: str = "subwords") -> None:
    """Raise ValueError if a line has more than MAX_SUBWORDS subwords or words."""
    if count > MAX_SUBWORDS:
        raise ValueError(f"{name} has {count:,} {unit}; the server takes {MAX_SUBWORDS:,} subwords: cut it")
