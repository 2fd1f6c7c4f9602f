"""Translations drawn from the model's distribution instead of searched for its maximum.

Every sentence has its own random numbers, a function of the seed and of its subwords: what is drawn for it depends
neither on the other sentences nor on how they are batched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from transformer.decoding.beam_search import batches, padded
from transformer.decoding.cached_decoder import CachedDecoder
from transformer.decoding.config import SamplingConfig
from transformer.decoding.hypothesis import Hypothesis
from transformer.model.transformer import Transformer
from transformer.text.vocabulary import BOS, EOS


def sample_ids(
    models: Sequence[Transformer],
    sources: Sequence[Sequence[int]],
    config: SamplingConfig,
    batch_tokens: int = 8192,
    progress: Callable[[int], object] = lambda count: None,
) -> list[list[Hypothesis]]:
    """Draw config.samples translations of each source (ids without </s>), independent of one another.

    Score and log-probability of a hypothesis are those under the model itself, whatever settings it was drawn with.
    """
    samples = config.samples
    results: list[list[Hypothesis]] = [[] for _ in sources]
    device = next(models[0].parameters()).device
    for rows in batches(sources, batch_tokens // samples):
        source = padded([[*sources[row], EOS] for row in rows])
        limits = torch.tensor([len(sources[row]) + config.extra_length for row in rows]).clamp(min=1)
        chances = np.zeros((len(rows), samples, int(limits.max())))
        for place, row in enumerate(rows):
            for number in range(samples):
                chances[place, number] = np.random.default_rng([config.seed, number, *sources[row]]).random(
                    chances.shape[2]
                )
        found = _draw(models, source.to(device), limits.to(device), torch.from_numpy(chances).to(device), config)
        for row, hypotheses in zip(rows, found, strict=True):
            results[row] = hypotheses
        progress(len(rows))
    return results


@torch.inference_mode()
def _draw(
    models: Sequence[Transformer], source: Tensor, limits: Tensor, chances: Tensor, config: SamplingConfig
) -> list[list[Hypothesis]]:
    """Samples for sources (B, S) by random numbers (B, N, longest limit) from [0, 1)."""
    count, width, longest = chances.shape
    decoder = CachedDecoder(models, source, width)
    ids = source.new_full((count, width, 1), BOS)
    scores = torch.zeros(count, width, dtype=decoder.precision, device=source.device)
    lengths = source.new_zeros(count, width)  # with </s>
    going = torch.ones(count, width, dtype=torch.bool, device=source.device)
    for place in range(longest):
        going &= (limits > place)[:, None]
        if (not source.is_cuda or place % 8 == 0) and not going.any():  # to ask a GPU is to wait for it
            break
        steps = decoder.step(ids[:, :, -1])
        subwords = pick(steps, chances[:, :, place].to(steps.dtype), config)
        scores += torch.where(going, steps.gather(2, subwords[:, :, None])[:, :, 0], 0.0)
        lengths += going
        going &= subwords != EOS
        ids = torch.cat((ids, subwords[:, :, None]), dim=2)
    return [
        [
            Hypothesis(tuple(subword for subword in line[1 : 1 + length] if subword != EOS), score, score)
            for line, length, score in zip(*of_sentence, strict=True)
        ]
        for of_sentence in zip(ids.tolist(), lengths.tolist(), scores.tolist(), strict=True)
    ]


def pick(steps: Tensor, chances: Tensor, config: SamplingConfig) -> Tensor:
    """Subwords (B, N) from log-probabilities (B, N, W) by the inverse of their distribution at chances (B, N)."""
    ordered, subwords = (steps / config.temperature).sort(dim=-1, descending=True, stable=True)
    if config.top_k:
        ordered[..., config.top_k :] = -math.inf
    shares = ordered.softmax(-1)
    before = shares.cumsum(-1) - shares
    shares = shares.masked_fill(before >= config.top_p, 0.0) if config.top_p < 1 else shares
    reached = shares.cumsum(-1)
    places = torch.searchsorted(reached, chances[:, :, None] * reached[..., -1:], right=True)
    last = (shares > 0).sum(-1, keepdim=True) - 1
    return subwords.gather(2, places.minimum(last))[:, :, 0]
