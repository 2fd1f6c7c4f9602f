"""What a translator asks of an engine: ids in, hypotheses out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from transformer.decoding.config import SearchConfig
from transformer.decoding.hypothesis import Hypothesis

Ids = Sequence[Sequence[int]]  # of sentences, without </s>
Progress = Callable[[int], object]  # called with the number of sentences that a batch finished


class Engine(Protocol):
    """The search that both engines offer. Sampling, scores and attention maps are the torch engine's alone."""

    def search(self, sources: Ids, config: SearchConfig, progress: Progress) -> list[list[Hypothesis]]:
        """Up to beam_size hypotheses of each source, best first, as decoding/beam_search.py defines them."""
        ...
