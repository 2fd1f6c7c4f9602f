"""A hypothesis and the score that ranks it. This module does not import torch, so each engine can use it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Hypothesis:
    """A translation as ids.

    ids: target subwords, without </s>. score: log_probability / length_divisor, which ranks hypotheses.
    log_probability: log P(ids, </s> | source), in nats; log P(ids | source) if the hypothesis reached the length limit
    before </s>.
    """

    ids: tuple[int, ...]
    score: float
    log_probability: float


def length_divisor(length: int, length_penalty: float) -> float:
    """((5 + n) / 6)^alpha for n = length, </s> counted, and alpha = length_penalty (Wu et al. 2016, equation 14)."""
    return ((5 + length) / 6) ** length_penalty


ScoredIds = Iterable[tuple[list[int], float]]  # ids without </s>, and their log-probability


def ranked(finished: ScoredIds, unfinished: ScoredIds, length_penalty: float, beam_size: int) -> list[Hypothesis]:
    """At most beam_size hypotheses: the finished ones, best score first, then the unfinished ones, best score first.

    finished: they ended in </s>, which counts as one more subword. unfinished: they reached the length limit.
    """
    hypotheses = []
    for pairs, ended in ((finished, 1), (unfinished, 0)):
        scored = [
            Hypothesis(tuple(ids), total / length_divisor(len(ids) + ended, length_penalty), total)
            for ids, total in pairs
        ]
        hypotheses += sorted(scored, key=lambda hypothesis: -hypothesis.score)
    return hypotheses[:beam_size]
