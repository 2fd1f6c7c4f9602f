"""Source ids to translations that are drawn at random from the model's distribution.

Each sentence has its own random numbers, a function of the seed and of its subwords. So the samples of a sentence
depend neither on the other sentences nor on the batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from transformer.decoding.batches import batches, padded
from transformer.decoding.cached_decoder import CachedDecoder, without_dropout
from transformer.decoding.config import SamplingConfig
from transformer.decoding.hypothesis import Hypothesis
from transformer.model.transformer import Transformer
from transformer.text.vocabulary import BOS, EOS


def sample_ids(
    models: Sequence[Transformer],
    sources: Iterable[Sequence[int]],
    config: SamplingConfig,
    batch_tokens: int = 8192,
    progress: Callable[[int], object] = lambda count: None,
) -> list[list[Hypothesis]]:
    """Sources to config.samples translations of each, drawn independently.

    models: several are an ensemble. sources: ids without </s>. batch_tokens: source subwords of a batch times samples.
    progress: called with the number of sentences after each batch. Score and log_probability of a hypothesis are both
    log P under the model itself, without temperature, top_k and top_p.
    """
    samples, sources = config.samples, list(sources)
    results: list[list[Hypothesis]] = [[] for _ in sources]
    device = next(models[0].parameters()).device
    for rows in batches(sources, batch_tokens // samples):
        source = padded([[*sources[row], EOS] for row in rows])
        limits = torch.tensor([len(sources[row]) + config.extra_length for row in rows]).clamp(min=1)
        chances = np.zeros((len(rows), samples, int(limits.max())))  # (B, N, longest limit)
        for place, row in enumerate(rows):
            for number in range(samples):
                generator = np.random.default_rng([config.seed, number, *sources[row]])
                chances[place, number] = generator.random(chances.shape[2])
        with without_dropout(models):
            drawn = _draw(models, source.to(device), limits.to(device), torch.from_numpy(chances).to(device), config)
        for row, hypotheses in zip(rows, drawn, strict=True):
            results[row] = hypotheses
        progress(len(rows))
    return results


@torch.inference_mode()
def _draw(
    models: Sequence[Transformer], source: Tensor, limits: Tensor, chances: Tensor, config: SamplingConfig
) -> list[list[Hypothesis]]:
    """N samples of each source (B, S), by random numbers from [0, 1).

    limits (B,): subwords of a sample at most, </s> counted. chances (B, N, longest limit): the random number of each
    subword.
    """
    sentences, samples, longest = chances.shape
    decoder = CachedDecoder(models, source, samples)
    ids = source.new_full((sentences, samples, 1), BOS)  # (B, N, 1 + t)
    scores = torch.zeros(sentences, samples, dtype=decoder.precision, device=source.device)
    lengths = source.new_zeros(sentences, samples)  # </s> counted
    unfinished = torch.ones(sentences, samples, dtype=torch.bool, device=source.device)
    for position in range(longest):
        unfinished &= (limits > position)[:, None]
        # on a GPU any() waits for the device, so it is called every 8 positions only
        if (not source.is_cuda or position % 8 == 0) and not unfinished.any():
            break
        steps = decoder.step(ids[:, :, -1])
        subwords = draw_subwords(steps, chances[:, :, position].to(steps.dtype), config)
        scores += torch.where(unfinished, steps.gather(2, subwords[:, :, None])[:, :, 0], 0.0)
        lengths += unfinished
        unfinished &= subwords != EOS
        ids = torch.cat((ids, subwords[:, :, None]), dim=2)
    return [
        [
            Hypothesis(tuple(subword for subword in line[1 : 1 + length] if subword != EOS), score, score)
            for line, length, score in zip(*of_sentence, strict=True)
        ]
        for of_sentence in zip(ids.tolist(), lengths.tolist(), scores.tolist(), strict=True)
    ]


def draw_subwords(steps: Tensor, chances: Tensor, config: SamplingConfig) -> Tensor:
    """Log-probabilities (B, N, W) of the next subword and random numbers (B, N) from [0, 1) to subwords (B, N).

    Inverse transform sampling: the first subword whose cumulative probability exceeds the random number. temperature,
    top_k and top_p change the distribution before. The subwords are in the order of their ids; with top_k or top_p,
    which need it, in descending order of probability.
    """
    scores, subwords = steps / config.temperature, None
    if config.top_k or config.top_p < 1:
        scores, subwords = scores.sort(dim=-1, descending=True, stable=True)
    if config.top_k:
        scores[..., config.top_k :] = -math.inf
    shares = scores.softmax(-1)
    if config.top_p < 1:
        before = shares.cumsum(-1) - shares  # the probability of all likelier subwords
        shares = shares.masked_fill(before >= config.top_p, 0.0)
    cumulative = shares.cumsum(-1)
    total = cumulative[..., -1:].contiguous()
    places = torch.searchsorted(cumulative, chances[:, :, None] * total, right=True)
    # rounding must not lead beyond the last possible subword, which is the first to reach the total, nor nan beyond all
    places = places.minimum(torch.searchsorted(cumulative, total)).clamp(max=cumulative.shape[-1] - 1)
    return (places if subwords is None else subwords.gather(2, places))[:, :, 0]
