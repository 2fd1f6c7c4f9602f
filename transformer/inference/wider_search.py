"""A second search, for a line whose best translation has not just the placeholders of the line.

Of the test lines of message catalogues (docs/results.md), one in forty with placeholders is searched again; four in
five of these then keep all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from transformer.decoding.config import SearchConfig
from transformer.inference.translation import Translation
from transformer.text.placeholders import disagree

WIDE = 32  # beams of the second search, unless the first one had more


def keep_placeholders(
    lines: Sequence[str],
    found: list[list[Translation]],
    config: SearchConfig,
    search: Callable[[list[str], SearchConfig], list[list[Translation]]],
) -> list[list[Translation]]:
    """The translations of each line, best first, with one in front that has just the placeholders of the line.

    found: of a first search with `config`. A second search is made for lines whose best translation has others; it
    gives the best one that has just these, if any has.
    """
    lost = [row for row, line in enumerate(lines) if disagree(line, found[row][0].text)]
    wider = replace(config, beam_size=max(WIDE, config.beam_size))
    again = dict(zip(lost, search([lines[row] for row in lost], wider) if lost else [], strict=True))
    return [
        _with_kept_first(line, first, again.get(row, []))[: config.beam_size]
        for row, (line, first) in enumerate(zip(lines, found, strict=True))
    ]


def _with_kept_first(line: str, first: list[Translation], wider: list[Translation]) -> list[Translation]:
    """Translations of a first search, with the best of a wider one in front that has just the line's placeholders."""
    kept = next((translation for translation in wider if not disagree(line, translation.text)), None)
    return [kept, *(one for one in first if one.subwords != kept.subwords)] if kept else first
