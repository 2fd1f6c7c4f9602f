"""The limits of one request to the server.

A request is refused before work is spent on it. gate.py ends one that takes too long.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from transformer.decoding.config import SearchConfig
from transformer.files import Mistake

if TYPE_CHECKING:
    from transformer.inference.translator import Translator

MAX_LINES, MAX_SUBWORDS = 1000, 1000  # of a request, and of a sentence
# Longer lines and words are refused before they are cut into subwords.
MAX_CHARACTERS, MAX_WORD = 10 * MAX_SUBWORDS, 2 * MAX_SUBWORDS  # spaCy takes 8 s for a word of 10,000 brackets
MAX_TAGS = 10_000  # of the HTML of a request
MAX_CATALOGUE = 20_000  # lines of a .po file: the time that polib takes grows with their square
MAX_BYTES = 1 << 20  # of a request to server.py
SECONDS = 30  # from the arrival of a request to its answer
MOST_SENTENCE_COST, MOST_LINE_COST = 100_000, 200_000  # see line_costs: about 5 and 9 s of a small model, at worst
# In the unit of line_costs; a batch may cost about as much as 70 short lines.
MOST_BATCH_COST = 65_536
MOST_WAITING_COST = 50 * MOST_BATCH_COST  # of all requests: more would wait for longer than a client does
_ENDS = re.compile(r"""[.!?…]["'”“’»«)\]]*+\s|[。！？\n]""")  # after which a sentence may end


def check_lines(lines: Sequence[str], name: str = "text") -> None:
    """Raise Mistake for more lines than a request may have, and for one that `check_line` refuses.

    name: what an error calls one of them.
    """
    if len(lines) > MAX_LINES:
        raise Mistake(f"{len(lines):,} {name}s are too many. A request may have {MAX_LINES:,}: send them in parts.")
    for number, line in enumerate(lines, start=1):
        check_line(name_of(number, len(lines), name), line)


def check_html(texts: Sequence[str]) -> None:
    """Raise Mistake for HTML of more texts or tags than a request may have. Its lines go to `check_lines` later."""
    if max(len(texts) / MAX_LINES, (tags := sum(text.count("<") for text in texts)) / MAX_TAGS) > 1:
        raise Mistake(
            f"{len(texts):,} texts with {tags:,} tags are too many. A request may have {MAX_LINES:,} texts with "
            f"{MAX_TAGS:,} tags: send them in parts."
        )


def line_costs(lines: Sequence[str], config: SearchConfig) -> list[int]:
    """The cost of each line, about in proportion to the time of its searches.

    A sentence of N characters takes up to N + extra_length steps, each of beam_size hypotheses and of a time that grows
    with the steps before it. Raises Mistake for a line that may cost more than MOST_LINE_COST, or a sentence of it
    more than MOST_SENTENCE_COST, since searches that have begun run to their ends, and for lines that cost more than
    MOST_WAITING_COST together.
    """
    beams, extra, costs = config.beam_size, config.extra_length, []
    for line in lines:
        count = 1 + len(_ENDS.findall(line))
        longest, mean = (min(length, MAX_SUBWORDS) + extra for length in (len(line), len(line) / count))
        costs.append(round(beams * count * mean * (1 + mean / 100)))
        if costs[-1] > MOST_LINE_COST or beams * longest * (1 + longest / 100) > MOST_SENTENCE_COST:
            raise Mistake(
                f"beam_size={beams} and extra_length={extra} are too much for a text of {len(line):,} characters. "
                "Lower them, or cut it."
            )
    if sum(costs) > MOST_WAITING_COST:
        raise Mistake(
            f"beam_size={beams} and extra_length={extra} are too much for {len(lines):,} texts of "
            f"{sum(map(len, lines)):,} characters. Lower them, or send the texts in parts."
        )
    return costs


def name_of(number: int, count: int, name: str = "text") -> str:
    """What an error calls one of `count` lines: the text, line 3."""
    return f"the {name}" if count == 1 else f"{name} {number:,}"


def check_line(name: str, line: str) -> None:
    """Raise Mistake for a line that is too long, or has a word that is. The line is not cut into subwords for this."""
    if len(line) > MAX_CHARACTERS:
        raise Mistake(f"{name} has {len(line):,} characters; the server takes {MAX_CHARACTERS:,}: cut it")
    if (longest := max(map(len, line.split()), default=0)) > MAX_WORD:
        raise Mistake(f"{name} has a word of {longest:,} characters; the server takes {MAX_WORD:,}: cut it")


def check_sentences(name: str, line: str, translator: Translator) -> None:
    """Raise Mistake if a sentence of a line has more than MAX_SUBWORDS subwords."""
    if len(line) <= MAX_SUBWORDS:  # a subword has at least one character
        return
    for subwords in translator.subwords([sentence.core for _, sentence in translator.sentences(line)]):
        if len(subwords) > MAX_SUBWORDS:
            raise Mistake(
                f"{name} has a sentence of {len(subwords):,} subwords; the server takes {MAX_SUBWORDS:,}: cut it"
            )
