"""What a search finds, and the score that ranks it; free of torch, so that other engines share it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Hypothesis:
    """A translation: target ids without </s>, its score, and log P(ids and </s> | source).

    One that met the limit unfinished has no </s>, and log P is that of its ids.
    """

    ids: tuple[int, ...]
    score: float
    log_probability: float


def length_divisor(length: int, length_penalty: float) -> float:
    """((5 + n) / 6)^alpha of a hypothesis with n subwords, </s> counted (Wu et al. 2016, equation 14)."""
    return ((5 + length) / 6) ** length_penalty


def ranked(
    found: Iterable[tuple[list[int], float]], ended: bool, length_penalty: float, beam_size: int
) -> list[Hypothesis]:
    """The best beam_size of ids and their log-probabilities; ended tells whether a </s> is counted that they lack."""
    hypotheses = [
        Hypothesis(tuple(ids), total / length_divisor(len(ids) + ended, length_penalty), total) for ids, total in found
    ]
    return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)[:beam_size]
