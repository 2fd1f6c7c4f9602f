"""A second, wider search, for a line whose best translation is wrong by its looks.

Of the test lines of message catalogues (docs/results.md), one in forty with placeholders is searched again; four in
five of these then keep all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from transformer.decoding.config import SearchConfig
from transformer.inference.translation import Translation

WIDE = 32  # beams of the second search, unless the first one had more
LONGEST = 400  # characters of a line that is searched again: wide searches of long lines take seconds


def search_again(
    lines: Sequence[str],
    found: list[list[Translation]],
    config: SearchConfig,
    search: Callable[[list[str], SearchConfig], list[list[Translation]]],
    is_wrong: Callable[[str, Translation], bool],
    may_be_mended: Callable[[str, Translation], bool],
) -> list[list[Translation]]:
    """The translations of each line, best first, with one in front that is not wrong, if a second search has one.

    found: of a first search with `config`. The second search is made for lines whose best translation is wrong and may
    be mended.
    """
    wrong = [
        row
        for row, (line, (best, *_)) in enumerate(zip(lines, found, strict=True))
        if len(line) <= LONGEST and is_wrong(line, best) and may_be_mended(line, best)
    ]
    wider = replace(config, beam_size=max(WIDE, config.beam_size))
    results = [*found]
    for row, second in zip(wrong, search([lines[row] for row in wrong], wider) if wrong else [], strict=True):
        right = next((each for each in second if not is_wrong(lines[row], each)), None)
        if right:
            others = [each for each in found[row] if each.subwords != right.subwords]
            results[row] = [right, *others][: config.beam_size]
    return results
