"""Models that decode subword by subword, on cached keys and values: the ground of beam search and of sampling.

The N beams of a sentence stand side by side as N queries to what they share: the memory of the source, and one past
that holds the keys and values of every beam at every step. Which of these a beam descends from is told by `ancestry`,
added to the scores of attention; so nothing of the past is ever moved when beams change places.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer.model.attention import KeysValues, KeyValueCache
from transformer.model.linear import product
from transformer.model.transformer import Transformer
from transformer.text.vocabulary import BOS, PAD

BLOCK = 64  # the vocabulary is cut into such blocks, the last one filled up


class CachedDecoder:
    """One or more models at work on a batch of sources; of several (an ensemble) the probabilities are averaged."""

    def __init__(self, models: Sequence[Transformer], source: Tensor, width: int):
        """Encode source ids (B, S) once per model, for `width` beams of each."""
        self.models = models
        self.biases = [model.source_bias(source) for model in models]
        memories = [model.encode(source, bias) for model, bias in zip(models, self.biases, strict=True)]
        self.memories: list[list[KeysValues]] = [
            model.memory_keys_values(memory) for model, memory in zip(models, memories, strict=True)
        ]
        self.caches = [[KeyValueCache() for _ in model.decoder] for model in models]
        self.ancestry = memories[0].new_zeros(len(source), width, 0)  # (B, N, t*N): 0 at ancestors, -inf elsewhere
        self.newcomers = memories[0].new_full((width, width), -math.inf).fill_diagonal_(0.0)
        self.precision = torch.promote_types(memories[0].dtype, torch.float32)  # of log-probabilities
        self.vocabulary = len(models[0].output_weight)
        missing = -self.vocabulary % BLOCK
        self.projections = [F.pad(model.output_weight, (0, 0, 0, missing)).to(memories[0].dtype) for model in models]
        self.place = 0  # of the next subword

    def step(self, ids: Tensor) -> Tensor:
        """log P (B, N, W) of what follows when each beam goes on with ids (B, N); <pad> and <s> follow nothing.

        W is V rounded up to whole blocks; what is no subword has probability 0.
        """
        ids = ids.clamp(max=self.vocabulary - 1)  # a beam of probability 0 may stand on what is no subword
        new = self.newcomers.expand(len(ids), -1, -1)
        self.ancestry = torch.cat((self.ancestry, new), dim=2)
        logs = [self._log_probabilities(number, ids) for number in range(len(self.models))]
        steps = logs[0] if len(logs) == 1 else torch.stack(logs).logsumexp(0) - math.log(len(logs))
        steps[..., PAD] = steps[..., BOS] = -math.inf
        self.place += 1
        return steps

    def _log_probabilities(self, number: int, ids: Tensor) -> Tensor:
        """Those of one of the models: (B, N) -> (B, N, W)."""
        bias = self.biases[number]
        ancestry = self.ancestry[:, None].to(bias.dtype)
        states = self.models[number].step(ids, self.place, self.caches[number], ancestry, self.memories[number], bias)
        logits = product(states, self.projections[number])
        logits[..., self.vocabulary :] = -math.inf
        return logits.log_softmax(-1, dtype=self.precision)

    def follow(self, parents: Tensor) -> None:
        """Beam n of each sentence goes on from beam parents[:, n] of the last step: (B, N)."""
        self.ancestry = self.ancestry.take_along_dim(parents[:, :, None], dim=1)

    def select(self, rows: Tensor) -> None:
        """Go on with some sentences only."""
        self.ancestry = self.ancestry[rows]
        self.biases = [bias[rows] for bias in self.biases]
        self.memories = [[(keys[rows], values[rows]) for keys, values in memory] for memory in self.memories]
        for cache in (cache for caches in self.caches for cache in caches):
            cache.select(rows)
