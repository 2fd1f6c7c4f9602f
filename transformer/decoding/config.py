"""The settings of beam search and of sampling. This module does not import torch, so each engine can use it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le

from transformer.model.config import check_settings

# A server has the same limits as the knobs, so that every trained model can be served.
MOST_BEAMS = 64
MOST_EXTRA_LENGTH = 1000  # subwords
MOST_SAMPLES = 1000  # of a sentence; more do not fit into memory
MOST_LENGTH_PENALTY = 20  # larger powers of a length overflow; values above 3 are not used
SEARCH_OPTIONS = ("beam_size", "length_penalty", "extra_length")  # what a request to a server can set

Beams = Annotated[int, Ge(1), Le(MOST_BEAMS)]
ExtraLength = Annotated[int, Ge(0), Le(MOST_EXTRA_LENGTH)]
LengthPenalty = Annotated[float, Ge(0), Le(MOST_LENGTH_PENALTY)]


@dataclass(frozen=True)
class SearchConfig:
    """Settings of beam search (section 6.1), which beam_search.py defines. Raises Mistake for a value out of range.

    beam_size: hypotheses kept per sentence; 1 is greedy search. length_penalty: alpha of ((5 + n) / 6)^alpha.
    extra_length: a translation has at most source subwords + extra_length subwords.
    """

    beam_size: Beams = 4
    length_penalty: LengthPenalty = 0.6
    extra_length: ExtraLength = 50

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True)
class SamplingConfig:
    """Settings of sampling, which sampling.py defines. Raises Mistake for a value out of range.

    samples: translations drawn per sentence. seed: of the random numbers. temperature: divides the logits; below 1 the
    likely subwords become likelier. top_k: draw from the k likeliest subwords of each step; 0: from all. top_p: draw
    from the likeliest subwords that together reach probability p (Holtzman et al. 2020, section 3.1). extra_length: as
    in SearchConfig.
    """

    samples: Annotated[int, Ge(1), Le(MOST_SAMPLES)] = 1
    seed: Annotated[int, Ge(0)] = 1
    temperature: Annotated[float, Ge(1e-6), Le(1e6)] = 1.0
    top_k: Annotated[int, Ge(0)] = 0
    top_p: Annotated[float, Ge(1e-9), Le(1)] = 1.0
    extra_length: ExtraLength = 50

    def __post_init__(self) -> None:
        check_settings(self)
