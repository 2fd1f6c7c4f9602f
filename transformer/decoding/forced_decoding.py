"""Forced decoding: the model reads a given translation, to score it or to show where it looks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from transformer.decoding.beam_search import batches, padded
from transformer.model.transformer import Transformer
from transformer.text.vocabulary import BOS, EOS


@torch.inference_mode()
def score_ids(
    models: Sequence[Transformer],
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    *,
    batch_tokens: int = 8192,
    progress: Callable[[int], object] = lambda count: None,
) -> list[list[float]]:
    """log P of each subword of the targets (ids without </s>), </s> last; several models are an ensemble.

    The sum over a target is the log_probability of a hypothesis. progress(count) is called after each batch.
    """
    results: list[list[float]] = [[] for _ in sources]
    device = next(models[0].parameters()).device
    longest = [max(source, target, key=len) for source, target in zip(sources, targets, strict=True)]
    for rows in batches(longest, batch_tokens):
        source = padded([[*sources[row], EOS] for row in rows]).to(device)
        target = padded([[BOS, *targets[row]] for row in rows]).to(device)
        wanted = padded([[*targets[row], EOS] for row in rows]).to(device)
        logs = []
        for model in models:
            steps = model.logits(model(source, target))
            precision = torch.promote_types(steps.dtype, torch.float32)
            logs.append(steps.log_softmax(-1, dtype=precision).gather(2, wanted[:, :, None])[:, :, 0])
        mean = torch.stack(logs).logsumexp(0) - math.log(len(logs))
        for row, values in zip(rows, mean.tolist(), strict=True):
            results[row] = values[: len(targets[row]) + 1]
        progress(len(rows))
    return results
