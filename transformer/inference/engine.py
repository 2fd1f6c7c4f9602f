"""The interface of an engine: source ids to hypotheses. The translator calls it; three modules implement it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from transformer.decoding.config import SearchConfig
from transformer.decoding.hypothesis import Hypothesis

Ids = Sequence[Sequence[int]]  # one sequence per sentence, without </s>
Progress = Callable[[int], object]  # called after each batch with its number of sentences
Check = Callable[[], object]  # called before each step of a search; by CTranslate2 before each batch


class Engine(Protocol):
    """The search that all engines offer. Sampling, scores and attention maps are computed by torch only."""

    def search(
        self, sources: Ids, config: SearchConfig, progress: Progress, before_step: Check
    ) -> list[list[Hypothesis]]:
        """Sources to at most beam_size hypotheses each, best first, as decoding/beam_search.py defines them.

        What before_step raises ends the search.
        """
        ...
