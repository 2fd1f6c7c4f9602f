"""Scores with 95% bootstrap intervals over the test sentences (Koehn 2004), computed by sacreBLEU."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import _bootstrap_resample, estimate_ci

from transformer.evaluation.bleu import bleu_of
from transformer.evaluation.scores import matches, metrics, rows_by_label

RESAMPLES = 1000
SEED = 12345  # sacreBLEU's own


class Estimate(NamedTuple):
    """score: in percent. margin: half the width of its 95% interval, in points; None for fewer than two sentences."""

    score: float
    margin: float | None


def estimate(metric: Metric, hypotheses: Sequence[str], references: Sequence[str]) -> Estimate:
    """The score of a metric of sacreBLEU with its interval from RESAMPLES resamples of the sentences."""
    os.environ["SACREBLEU_SEED"] = str(SEED)  # equal sentences give equal intervals, whatever the user has set
    score = metric.corpus_score(hypotheses, [references]).score
    # corpus_score(n_bootstrap=RESAMPLES) does the same, but fails if some resamples score 0: float beside float32.
    resamples = _bootstrap_resample(metric._extract_corpus_statistics(hypotheses, [references]), metric, RESAMPLES)[1]
    margin = float(estimate_ci(np.array([resample.score for resample in resamples], np.float64))[1])
    return Estimate(score, margin if len(hypotheses) > 1 else None)


def estimate_bleu(hypotheses: Sequence[str], references: Sequence[str], language: str) -> Estimate:
    """BLEU of real text with its interval; see `scores.bleu`."""
    return estimate(bleu_of(language), list(hypotheses), list(references))


def estimate_exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> Estimate:
    """See `scores.exact_match`, with its interval from RESAMPLES resamples."""
    equal = np.array(matches(hypotheses, references) or [False], np.float64)
    chosen = np.random.default_rng(SEED).choice(len(equal), size=(RESAMPLES, len(equal)), replace=True)
    margin = float(estimate_ci(100 * equal[chosen].mean(1))[1])
    return Estimate(100 * float(equal.mean()), margin if len(equal) > 1 else None)


def margins(
    hypotheses: Sequence[str], references: Sequence[str], language: str, labels: Sequence[str] = ()
) -> dict[str, float]:
    """Half of the 95% interval of each score of `scores.corpus_scores` and `scores.exact_match_by_label`, by name.

    labels: the labels of each sentence, space-separated; empty if there are none. Scores of one sentence are left out.
    """
    estimates = {name: estimate(*inputs) for name, inputs in metrics(hypotheses, references, language).items()}
    estimates["exact_match"] = estimate_exact_match(hypotheses, references)
    for label, rows in rows_by_label(labels).items():
        chosen = ([side[row] for row in rows] for side in (hypotheses, references))
        estimates[f"exact_match_{label}"] = estimate_exact_match(*chosen)
    return {name: value.margin for name, value in estimates.items() if value.margin is not None}


def margins_of_sets(
    sets: Mapping[str, tuple[Sequence[str], Sequence[str]]], language: str, labels: Sequence[str] = ()
) -> dict[str, float]:
    """Half of the 95% interval of each score in scores.json, by name.

    sets: valid and the test sets in order, name -> (references, hypotheses). labels: see `margins`, of the first test
    set.
    """
    first = next(name for name in sets if name != "valid")
    references, hypotheses = sets[first]
    by_name = margins(hypotheses, references, language, labels)
    for name, (references, hypotheses) in sets.items():
        # bleu of the first test set is there already, and a bootstrap takes time
        margin = by_name.get("bleu") if name == first else estimate_bleu(hypotheses, references, language).margin
        if margin is not None:
            by_name["valid_bleu" if name == "valid" else f"bleu_{name}"] = margin
    return by_name
