"""Settings of a search and of sampling, checked when they are made; free of torch, so that every engine shares them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SearchConfig:
    """Settings of beam search (section 6.1; defined in beam_search.py). Raises ValueError for one out of range.

    beam_size: hypotheses kept per sentence; 1 is greedy search. length_penalty: alpha of ((5 + n) / 6)^alpha.
    extra_length: a translation has at most source subwords + extra_length. replace_unk: each <unk> is replaced by the
    source word that it attends to most; for word-level vocabularies.
    """

    beam_size: int = 4
    length_penalty: float = 0.6
    extra_length: int = 50
    replace_unk: bool = False

    def __post_init__(self) -> None:
        if self.beam_size < 1 or self.extra_length < 0:
            raise ValueError(
                f"beam_size={self.beam_size} must be at least 1, extra_length={self.extra_length} at least 0"
            )


@dataclass(frozen=True)
class SamplingConfig:
    """Settings of sampling (sampling.py). Raises ValueError for one out of range.

    samples: translations drawn per sentence. temperature divides the logits: below 1 likely subwords become likelier.
    top_k: only the k likeliest subwords of each step; 0: all. top_p: only the likeliest that together reach
    probability p (Holtzman et al. 2020, section 3.1). extra_length: as of SearchConfig.
    """

    samples: int = 1
    seed: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    extra_length: int = 50

    def __post_init__(self) -> None:
        if not self.temperature > 0 or self.top_k < 0 or not 0 < self.top_p <= 1 or self.samples < 1:
            raise ValueError(
                f"temperature={self.temperature} must be above 0, top_k={self.top_k} at least 0 (all), "
                f"top_p={self.top_p} in (0, 1], samples={self.samples} at least 1"
            )
