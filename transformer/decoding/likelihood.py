"""Decoder states to the log-probabilities of given subwords, without gradients, a limited number of scores at a time.

The scores over the vocabulary, (tokens, V), are the largest tensor of a model. C: tokens of one chunk.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer.model.linear import product

SCORES_AT_ONCE = {"cpu": 2**23, "cuda": 2**28}  # numbers in the scores of a chunk


@torch.no_grad()
def target_log_probabilities(states: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """log P of each target in nats, in at least float32: states (tokens, D), weight (V, D), targets (tokens,)."""
    matrix = weight.to(states.dtype)
    chunk = max(1, SCORES_AT_ONCE[states.device.type] // len(matrix))
    precision = torch.promote_types(states.dtype, torch.float32)
    logs = [
        -F.cross_entropy(product(x, matrix).to(precision), ids, reduction="none")  # (C, V) -> (C,)
        for x, ids in zip(states.split(chunk), targets.split(chunk), strict=True)
    ]
    return torch.cat(logs) if logs else states.new_zeros(0, dtype=precision)


def log_at_targets(scores: Tensor, probabilities: Tensor, targets: Tensor, precision: torch.dtype) -> Tensor:
    """log softmax(scores) at the targets, when softmax(scores) is known: (C, V), (C, V), (C,) -> (C,) in `precision`.

    scores and probabilities may have more rows than there are targets.

    Where the probability of a target underflows, its logarithm is computed from the largest probability p_m of the row:
    log p_y = z_y - z_m + log p_m. On a GPU all rows are computed so, since asking where would wait for the GPU.
    """
    scores, probabilities = scores[: len(targets)], probabilities[: len(targets)]
    rows = torch.arange(len(targets), device=targets.device)
    logs = probabilities[rows, targets].to(precision).log_()
    if not scores.is_cuda:
        rows = rows[logs < math.log(torch.finfo(precision).tiny)]
        if not len(rows):
            return logs
        scores, probabilities, targets = scores[rows], probabilities[rows], targets[rows]
    largest, places = scores.max(dim=1)
    within = torch.arange(len(targets), device=targets.device)
    differences = scores[within, targets].to(precision) - largest.to(precision)
    logs[rows] = differences + probabilities[within, places].to(precision).log_()
    return logs
