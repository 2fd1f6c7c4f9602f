"""A second search, for lines whose best translation loses a placeholder.

On message catalogues one line in thirty lost one; of these, two in three keep all in one of WIDE hypotheses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from transformer.decoding.config import SearchConfig
from transformer.inference.translation import Translation
from transformer.text.placeholders import disagree

WIDE = 32  # beam_size of the second search


def keep_placeholders(
    lines: Sequence[str],
    found: list[list[Translation]],
    config: SearchConfig,
    search: Callable[[list[str], SearchConfig], list[list[Translation]]],
) -> list[list[Translation]]:
    """Translations of lines, best first, to the same with one first that keeps the placeholders of its line.

    Where the best does not, it is the best one that does of a search with WIDE beams, if there is one.
    """
    lost = [row for row, line in enumerate(lines) if disagree(line, found[row][0].text)]
    wider = replace(config, beam_size=max(WIDE, config.beam_size))
    for row, some in zip(lost, search([lines[row] for row in lost], wider) if lost else [], strict=True):
        kept = [translation for translation in some if not disagree(lines[row], translation.text)][:1]
        others = [translation for translation in found[row] if [translation.subwords] != [one.subwords for one in kept]]
        found[row] = [*kept, *others][: config.beam_size]
    return found
