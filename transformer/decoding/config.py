"""The settings of beam search and of sampling. This module does not import torch, so each engine can use it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SearchConfig:
    """Settings of beam search (section 6.1), which beam_search.py defines. Raises ValueError for a value out of range.

    beam_size: hypotheses kept per sentence; 1 is greedy search. length_penalty: alpha of ((5 + n) / 6)^alpha.
    extra_length: a translation has at most source subwords + extra_length subwords. replace_unk: whether each <unk> is
    replaced by the source word with its largest attention weight; for word-level vocabularies.
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
    """Settings of sampling, which sampling.py defines. Raises ValueError for a value out of range.

    samples: translations drawn per sentence. seed: of the random numbers. temperature: divides the logits; below 1 the
    likely subwords become likelier. top_k: draw from the k likeliest subwords of each step; 0: from all. top_p: draw
    from the likeliest subwords that together reach probability p (Holtzman et al. 2020, section 3.1). extra_length: as
    in SearchConfig.
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
