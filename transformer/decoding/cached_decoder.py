"""The probabilities of the next subword, one subword at a time, over cached keys and values: for search and sampling.

The N beams of a sentence are N queries of one product. Each of them attends to the memory of the source, and to one
cache that holds the keys and values of all N beams at all positions so far. A beam descends from one beam at each
earlier position, its ancestors, and must attend only to these. The bias `ancestry` (B, N, t*N) does this: it is 0 at
ancestors and -inf elsewhere. When a step reorders the beams, only rows of `ancestry` are copied, never the cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer.decoding.largest import BLOCK
from transformer.decoding.likelihood import SCORES_AT_ONCE
from transformer.model.attention import KeysValues, KeyValueCache
from transformer.model.cpu import product
from transformer.model.transformer import Transformer
from transformer.text.vocabulary import BOS, PAD


def log_mean_probability(logs: Sequence[Tensor]) -> Tensor:
    """The logarithm of the mean of probabilities, one tensor of their logarithms for each model of an ensemble.

    It is computed in the highest precision of the models.
    """
    if len(logs) == 1:
        return logs[0]
    precision = reduce(torch.promote_types, (log.dtype for log in logs))
    return torch.stack([log.to(precision) for log in logs]).logsumexp(0) - math.log(len(logs))


@contextmanager
def without_dropout(models: Sequence[Transformer]) -> Iterator[None]:
    """Surround decoding: all parts of the models are in evaluation mode, and afterwards in the mode they had before."""
    modes = {part: part.training for model in models for part in model.modules()}
    try:
        for part in modes:
            part.training = False
        yield
    finally:
        for part, training in modes.items():
            part.training = training


class CachedDecoder:
    """One or more models that decode a batch of sources. Several are an ensemble: their probabilities are averaged."""

    def __init__(self, models: Sequence[Transformer], source: Tensor, beam_size: int):
        """Encode source ids (B, S) with each model. beam_size: N."""
        self.models = models
        self.biases = [model.source_bias(source) for model in models]
        memories = [model.encode(source, bias) for model, bias in zip(models, self.biases, strict=True)]
        self.memories: list[list[KeysValues]] = [
            model.memory_keys_values(memory) for model, memory in zip(models, memories, strict=True)
        ]
        self.caches = [[KeyValueCache() for _ in model.decoder] for model in models]
        self.ancestry = memories[0].new_zeros(len(source), beam_size, 0)  # (B, N, t*N)
        # a new position is an ancestor of its own beam only: (N, N), 0 on the diagonal
        self.own_position = memories[0].new_full((beam_size, beam_size), -math.inf).fill_diagonal_(0.0)
        # of the log-probabilities: the highest precision of the models, at least float32
        self.precision = reduce(torch.promote_types, (memory.dtype for memory in memories), torch.float32)
        self.vocabulary = len(models[0].output_weight)
        missing = -self.vocabulary % BLOCK
        self.projections = [
            F.pad(model.output_weight, (0, 0, 0, missing)).to(memory.dtype)
            for model, memory in zip(models, memories, strict=True)
        ]
        # The results of each step are written here. New memory in each step, 32 MB and more at a time, would come from
        # the operating system, page by page: with a vocabulary of 50,000 that takes as long as all computation.
        self.results = [
            memory.new_empty(len(source) * beam_size, len(matrix), dtype=self.precision)
            for memory, matrix in zip(memories, self.projections, strict=True)
        ]
        self.position = 0  # of the next subword

    def step(self, ids: Tensor) -> Tensor:
        """The newest subword of each beam (B, N) to the log-probabilities of the next one (B, N, W).

        W is V rounded up to a multiple of BLOCK. <pad>, <s> and the ids from V on have probability 0. The next step
        overwrites the tensor.
        """
        ids = ids.clamp(max=self.vocabulary - 1)  # a beam of probability 0 may have an id from V on
        new = self.own_position.expand(len(ids), -1, -1)  # (N, N) -> (B, N, N)
        self.ancestry = torch.cat((self.ancestry, new), dim=2)
        steps = log_mean_probability([self._log_probabilities(number, ids) for number in range(len(self.models))])
        self.position += 1
        return steps

    def _log_probabilities(self, number: int, ids: Tensor) -> Tensor:
        """The log-probabilities of model `number`: (B, N) -> (B, N, W)."""
        bias = self.biases[number]
        ancestry = self.ancestry[:, None].to(bias.dtype)  # (B, 1, N, t*N)
        caches, memory = self.caches[number], self.memories[number]
        states = self.models[number].step(ids, self.position, caches, ancestry, memory, bias)  # (B, N, D)
        results, matrix = self.results[number][: ids.numel()], self.projections[number]
        chunk = max(1, SCORES_AT_ONCE[states.device.type] // len(matrix))
        for x, result in zip(states.flatten(0, 1).split(chunk), results.split(chunk), strict=True):  # (chunk, D or W)
            logits = product(x, matrix)
            for places in (PAD, BOS, slice(self.vocabulary, None)):  # no list of ids: on a GPU it would be copied there
                logits[:, places] = -math.inf
            torch.log_softmax(logits, -1, dtype=self.precision, out=result)
        return results.view(*ids.shape, -1)

    def reorder(self, parents: Tensor) -> None:
        """Make beam n of each sentence the continuation of beam parents[:, n] of the last step. parents: (B, N)."""
        self.ancestry = self.ancestry.take_along_dim(parents[:, :, None], dim=1)

    def select(self, rows: Tensor) -> None:
        """Keep only the sentences at the places `rows`."""
        self.ancestry = self.ancestry[rows]
        self.biases = [bias[rows] for bias in self.biases]
        self.memories = [[(keys[rows], values[rows]) for keys, values in memory] for memory in self.memories]
        for cache in (cache for caches in self.caches for cache in caches):
            cache.select(rows)
