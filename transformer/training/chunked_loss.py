"""The smoothed loss and its gradients for a limited number of tokens at a time: what only makes loss.py faster.

The scores over the vocabulary are the largest tensor of a model. Here those of all tokens are never stored. C: tokens
of one chunk.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

TOKEN_MULTIPLE = 64  # the tokens are padded to a multiple of this: oneDNN compiles a program for each new shape


def tokens_per_chunk(states: Tensor) -> int:
    """The number of tokens to project to the vocabulary at a time; on a CPU few, so that their scores fit its cache."""
    return 8192 if states.is_cuda else 512


def log_at_targets(scores: Tensor, probabilities: Tensor, targets: Tensor, precision: torch.dtype) -> Tensor:
    """log softmax(scores) at the targets, when softmax(scores) is known: (C, V), (C, V), (C,) -> (C,) in `precision`.

    scores and probabilities may have more rows than there are targets.

    Where the probability of a target underflows, its logarithm is computed from the largest probability p_m of the row:
    log p_y = z_y - z_m + log p_m. On a GPU this is done for all rows, because finding them would wait for the GPU.
    """
    scores, probabilities = scores[: len(targets)], probabilities[: len(targets)]
    rows = torch.arange(len(targets), device=targets.device)
    logs = probabilities[rows, targets].to(precision).log_()
    if not scores.is_cuda:
        rows = rows[logs < math.log(torch.finfo(precision).tiny)]
        if not len(rows):
            return logs
        scores, probabilities, targets = scores[rows], probabilities[rows], targets[rows]
    largest, indices = scores.max(dim=1)
    within = torch.arange(len(targets), device=targets.device)
    differences = scores[within, targets].to(precision) - largest.to(precision)
    logs[rows] = differences + probabilities[within, indices].to(precision).log_()
    return logs


class ChunkedLoss(torch.autograd.Function):
    """The loss and its gradients, computed in one pass over the tokens.

    With s = label_smoothing, V subwords, e = s / (V - 2), the scores z of a token, p = softmax(z) and its target y:
    loss = -log p_y + (s + e) z_y - e (sum of z_v over all v but padding). Its gradient by z is p - q with q_y = 1 - s,
    q_padding = 0 and e elsewhere. This gradient is multiplied into the gradients of states and weight chunk by chunk,
    so the scores of all tokens are never stored.
    """

    @staticmethod
    def forward(ctx, states: Tensor, weight: Tensor, targets: Tensor, label_smoothing: float, padding: int) -> Tensor:
        share = label_smoothing / (len(weight) - 2)
        chunk, vocabulary = tokens_per_chunk(states), len(weight)
        if states.dtype != weight.dtype:
            # What all scores of a token have in common changes no loss and no gradient, but costs digits of bfloat16.
            weight = weight - weight.mean(dim=0)
        matrix = F.pad(weight.to(states.dtype), (0, 0, 0, -vocabulary % 64))  # products of odd widths are slower
        padded = F.pad(states, (0, 0, 0, -len(states) % TOKEN_MULTIPLE))
        scores, probabilities = (states.new_empty(min(chunk, len(padded)), len(matrix)) for _ in range(2))
        padded_gradient, weight_gradient = torch.empty_like(padded), torch.zeros_like(weight)
        target_logs, target_scores = [], []
        for x, ids, x_gradient in zip(*(t.split(chunk) for t in (padded, targets, padded_gradient)), strict=True):
            at_targets = torch.arange(len(ids), device=x.device), ids  # indices into (C, V)
            z = torch.mm(x, matrix.T, out=scores[: len(x)])  # (C, D) -> (C, V)
            z[:, vocabulary:] = -torch.inf
            p = torch.softmax(z, dim=1, out=probabilities[: len(x)])
            target_scores.append(z[at_targets].to(weight.dtype))
            target_logs.append(log_at_targets(z, p, ids, weight.dtype))
            p[at_targets] += label_smoothing + share - 1
            torch.mm(p, matrix, out=x_gradient)
            weight_gradient += (p.T @ x)[:vocabulary]
        share_of_all = share * (weight.sum(dim=0) - weight[padding])
        states_gradient = padded_gradient[: len(states)]
        states_gradient -= share_of_all.to(states.dtype)
        smoothed_states = share * states.sum(dim=0, dtype=weight.dtype)
        weight_gradient -= smoothed_states
        weight_gradient[padding] += smoothed_states
        ctx.save_for_backward(states_gradient, weight_gradient)
        loss = (label_smoothing + share) * torch.cat(target_scores) - torch.cat(target_logs)
        return loss.sum(dtype=torch.float64) - states.to(weight.dtype).mv(share_of_all).sum(dtype=torch.float64)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor):
        states_gradient, weight_gradient = ctx.saved_tensors
        return states_gradient * gradient.to(states_gradient.dtype), weight_gradient * gradient, None, None, None
