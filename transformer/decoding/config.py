"""The settings of beam search and of sampling. This module does not import torch, so each engine can use it."""

from __future__ import annotations

import math
from dataclasses import dataclass

# The most that a server searches with; what a server would refuse is no knob of a model.
MOST_BEAMS = 64
MOST_EXTRA_LENGTH = 1000  # subwords
MOST_SAMPLES = 1000  # of a sentence; more do not fit into memory
MOST_LENGTH_PENALTY = 20  # larger powers of a length overflow; values above 3 are not used
SEARCH_OPTIONS = ("beam_size", "length_penalty", "extra_length")  # what a request to a server can set


def check_range(config: object, **ranges: tuple[float, float]) -> None:
    """Raise ValueError for a field that is not from `least` to `most`. ranges: name -> (least, most)."""
    for name, (least, most) in ranges.items():
        value = getattr(config, name)
        if not least <= value <= most or math.isinf(value):  # nan is in no range
            bounds = f"at least {least:g}" if math.isinf(most) else f"from {least:g} to {most:g}"
            raise ValueError(f"{name}={value} must be {bounds}. Nothing was translated.")


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
        check_range(
            self,
            beam_size=(1, MOST_BEAMS),
            length_penalty=(0, MOST_LENGTH_PENALTY),
            extra_length=(0, MOST_EXTRA_LENGTH),
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
        check_range(
            self,
            samples=(1, MOST_SAMPLES),
            seed=(0, math.inf),
            temperature=(1e-6, 1e6),
            top_k=(0, math.inf),
            top_p=(1e-9, 1),
            extra_length=(0, MOST_EXTRA_LENGTH),
        )
