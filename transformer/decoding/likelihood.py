"""Decoder states to the log-probabilities of target subwords, without gradients, a limited number of scores at a time.

The scores over the vocabulary, (tokens, V), are the largest tensor of a model. C: tokens of one chunk.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer.model.cpu import product

SCORES_AT_ONCE = {"cpu": 2**23, "cuda": 2**28}  # numbers in the scores of a chunk


@torch.no_grad()
def target_log_probabilities(states: Tensor, weight: Tensor, targets: Tensor, never: Sequence[int] = ()) -> Tensor:
    """log P of each target in nats, in at least float32: states (tokens, D), weight (V, D), targets (tokens,).

    never: ids that have probability 0.
    """
    matrix = weight.to(states.dtype)
    chunk = max(1, SCORES_AT_ONCE[states.device.type] // len(matrix))
    precision = torch.promote_types(states.dtype, torch.float32)
    logs = []
    for x, ids in zip(states.split(chunk), targets.split(chunk), strict=True):
        scores = product(x, matrix).to(precision)  # (C, V)
        for subword in never:
            scores[:, subword] = -math.inf
        logs.append(-F.cross_entropy(scores, ids, reduction="none"))  # (C,)
    return torch.cat(logs) if logs else states.new_zeros(0, dtype=precision)
