"""The losses, summed over target tokens, in nats. Both start from decoder states, so that scores over the vocabulary,
the widest thing in the model, exist for a few tokens at a time only."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

ROWS = 64  # tokens are projected by multiples of so many, zeros added: oneDNN compiles a program for each new shape


def rows_at_once(states: Tensor) -> int:
    """Tokens to project to the vocabulary at a time: on a CPU few, so that their scores stay in its cache."""
    return 8192 if states.is_cuda else 1024


class _SmoothedCrossEntropy(torch.autograd.Function):
    """Projection, loss and gradient in one pass over the tokens.

    The gradient of the scores has a closed form, softmax(scores) minus the smoothed targets; it is carried on to states
    and weight while the scores are at hand.
    """

    @staticmethod
    def forward(ctx, states: Tensor, weight: Tensor, targets: Tensor, smoothing: float, padding: int) -> Tensor:
        share = smoothing / (len(weight) - 2)
        most, vocabulary = rows_at_once(states), len(weight)
        matrix = F.pad(weight.to(states.dtype), (0, 0, 0, -vocabulary % 64))  # products of odd widths are slower
        padded = F.pad(states, (0, 0, 0, -len(states) % ROWS))
        scores, chances = (states.new_empty(min(most, len(padded)), len(matrix)) for _ in range(2))
        slope, weight_slope = torch.empty_like(padded), torch.zeros_like(weight)
        log_chances, at_goal = [], []  # of the targets
        for rows, goals, rows_slope in zip(*(x.split(most) for x in (padded, targets, slope)), strict=True):
            goal = torch.arange(len(goals), device=rows.device), goals  # its place in (tokens, V)
            z = torch.mm(rows, matrix.T, out=scores[: len(rows)])
            z[:, vocabulary:] = -torch.inf
            p = torch.softmax(z, dim=1, out=chances[: len(rows)])
            at_goal.append(z[goal].to(weight.dtype))
            log_chances.append(p[goal].to(weight.dtype).clamp_(min=torch.finfo(weight.dtype).tiny).log_())
            p[goal] += smoothing + share - 1
            torch.mm(p, matrix, out=rows_slope)
            weight_slope += (p.T @ rows)[:vocabulary]
        others = share * (weight.sum(dim=0) - weight[padding])
        states_slope = slope[: len(states)]
        states_slope -= others.to(states.dtype)
        everywhere = share * states.sum(dim=0, dtype=weight.dtype)
        weight_slope -= everywhere
        weight_slope[padding] += everywhere
        ctx.save_for_backward(states_slope, weight_slope)
        loss = (smoothing + share) * torch.cat(at_goal) - torch.cat(log_chances)
        return loss.sum(dtype=torch.float64) - states.to(weight.dtype).mv(others).sum(dtype=torch.float64)

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
    for rows, goals in zip(states.split(rows_at_once(states)), targets.split(rows_at_once(states)), strict=True):
        total += F.nll_loss(log_probabilities(rows, matrix), goals, reduction="sum")
    return total
