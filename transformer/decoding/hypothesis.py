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


def ranked(
    found: Iterable[tuple[list[int], float]], ended: bool, length_penalty: float, beam_size: int
) -> list[Hypothesis]:
    """Pairs (ids, log-probability) to at most beam_size hypotheses, best score first.

    found: ids without </s>. ended: whether they ended in </s>, which then counts as one more subword.
    """
    hypotheses = [
        Hypothesis(tuple(ids), total / length_divisor(len(ids) + ended, length_penalty), total) for ids, total in found
    ]
    return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)[:beam_size]
