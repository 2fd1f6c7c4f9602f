"""The losses, summed over target tokens, in nats. Both start from decoder states, so that scores over the vocabulary,
the widest thing in the model, exist for a few tokens at a time only."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

ROWS = 512  # tokens projected to the vocabulary at a time: few enough for their scores to stay in a CPU's cache


class _SmoothedCrossEntropy(torch.autograd.Function):
    """Projection, loss and gradient in one pass over the tokens.

    The gradient of the scores has a closed form, softmax(scores) minus the smoothed targets; it is carried on to states
    and weight while the scores are at hand.
    """

    @staticmethod
    def forward(ctx, states: Tensor, weight: Tensor, targets: Tensor, smoothing: float, padding: int) -> Tensor:
        share = smoothing / (len(weight) - 2)
        matrix = weight.to(states.dtype)
        states_slope, weight_slope = torch.empty_like(states), torch.zeros_like(weight)
        total = torch.zeros((), dtype=torch.float64, device=states.device)
        parts = zip(states.split(ROWS), targets.split(ROWS), states_slope.split(ROWS), strict=True)
        for rows, goals, rows_slope in parts:
            scores = log_probabilities(rows, matrix)
            at_goal = scores.gather(1, goals[:, None])
            rest = scores.sum(dim=1, keepdim=True) - at_goal - scores[:, padding, None]
            total -= ((1 - smoothing) * at_goal + share * rest).sum()
            slope = scores.exp_().sub_(share)
            slope[:, padding] += share
            slope.scatter_add_(1, goals[:, None], torch.full_like(at_goal, share - (1 - smoothing)))
            slope = slope.to(rows.dtype)
            torch.mm(slope, matrix, out=rows_slope)
            weight_slope += slope.T @ rows
        ctx.save_for_backward(states_slope, weight_slope)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor):
        states_slope, weight_slope = ctx.saved_tensors
        return states_slope * gradient.to(states_slope.dtype), weight_slope * gradient, None, None, None


def log_probabilities(states: Tensor, matrix: Tensor) -> Tensor:
    """log softmax of the projection, in at least float32: states (tokens, D), matrix (V, D) -> (tokens, V)."""
    return (states @ matrix.T).log_softmax(dim=1, dtype=torch.promote_types(states.dtype, torch.float32))


def smoothed_cross_entropy(
    states: Tensor, weight: Tensor, targets: Tensor, smoothing: float, padding: int = 0
) -> Tensor:
    """Cross-entropy against the smoothed targets of section 5.4, summed over tokens; float64.

    The target gets 1 - smoothing; the other V - 2 subwords, all but the target and padding, share the rest evenly
    (torch's own label_smoothing spreads over all V). states (tokens, D) in the precision to multiply in, weight (V, D),
    targets (tokens,) without padding. Raises ValueError when V leaves nobody to share with.
    """
    if len(weight) < 3:
        raise ValueError(f"label smoothing needs a vocabulary of at least 3 subwords, got {len(weight)}")
    return _SmoothedCrossEntropy.apply(states, weight, targets, smoothing, padding)


def cross_entropy(states: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Negative log-likelihood of the targets, summed over tokens; exp of its mean is the perplexity. float64.

    Shapes as for smoothed_cross_entropy; not meant for gradients.
    """
    matrix = weight.to(states.dtype)
    total = torch.zeros((), dtype=torch.float64, device=states.device)
    for rows, goals in zip(states.split(ROWS), targets.split(ROWS), strict=True):
        total += F.nll_loss(log_probabilities(rows, matrix), goals, reduction="sum")
    return total
