"""Forced decoding: sources and their translations to the log-probability of each target subword."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch

from transformer.decoding.batches import batches, padded
from transformer.decoding.cached_decoder import log_mean_probability, without_dropout
from transformer.decoding.likelihood import target_log_probabilities
from transformer.model.transformer import Transformer
from transformer.text.vocabulary import BOS, EOS, PAD


@torch.inference_mode()
def score_ids(
    models: Sequence[Transformer],
    sources: Iterable[Sequence[int]],
    targets: Iterable[Sequence[int]],
    *,
    never: Sequence[int] = (PAD, BOS),
    batch_tokens: int = 8192,
    progress: Callable[[int], object] = lambda count: None,
) -> list[list[float]]:
    """Sources and targets to log P of each target subword and of </s> at the end, in nats.

    models: several are an ensemble, whose probability is the mean of theirs. sources, targets: ids without </s>.
    never: ids that have probability 0; by default those of the search, so that the sum over a target is the
    log_probability of a finished Hypothesis with these ids. progress: called with the number of sentences after each
    batch.
    """
    sources, targets = list(sources), list(targets)
    results: list[list[float]] = [[] for _ in sources]
    device = next(models[0].parameters()).device
    longest = [max(source, target, key=len) for source, target in zip(sources, targets, strict=True)]
    for rows in batches(longest, batch_tokens):
        source = padded([[*sources[row], EOS] for row in rows]).to(device)
        target = padded([[BOS, *targets[row]] for row in rows]).to(device)
        outputs = padded([[*targets[row], EOS] for row in rows]).to(device)  # (B, T), the subwords to score
        shown = outputs != PAD
        with without_dropout(models):
            states = [model(source, target)[shown] for model in models]
        logs = [
            target_log_probabilities(of_model, model.output_weight, outputs[shown], never)
            for of_model, model in zip(states, models, strict=True)
        ]
        for row, values in zip(rows, log_mean_probability(logs).split(shown.sum(1).tolist()), strict=True):
            results[row] = values.tolist()
        progress(len(rows))
    return results
