"""The losses of training and validation, in nats, summed over target tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from transformer.decoding.likelihood import target_log_probabilities
from transformer.files import Mistake
from transformer.training.chunked_loss import ChunkedLoss


def smoothed_loss(scores: Tensor, targets: Tensor, label_smoothing: float, padding: int = 0) -> Tensor:
    """Cross-entropy with the smoothed targets of section 5.4, summed over tokens: scores (tokens, V), ids (tokens,).

    The target gets 1 - label_smoothing; the other V - 2 subwords, all but the target and padding, share the rest evenly
    (torch's own label_smoothing distributes it over all V). Trainings compute it by smoothed_cross_entropy.
    """
    distribution = torch.full_like(scores, label_smoothing / (scores.shape[1] - 2))
    distribution.scatter_(1, targets[:, None], 1 - label_smoothing)
    distribution[:, padding] = 0
    return -(distribution * scores.log_softmax(1)).sum()


def smoothed_cross_entropy(
    states: Tensor, weight: Tensor, targets: Tensor, label_smoothing: float, padding: int = 0
) -> Tensor:
    """smoothed_loss(states W^T, ...), computed some tokens at a time; float64. Its backward needs no scores again.

    states (tokens, D), in the precision of the products; weight (V, D); targets (tokens,) without padding. Raises
    Mistake for V < 3, where there are no other subwords.
    """
    if len(weight) < 3:
        raise Mistake(f"Label smoothing needs a vocabulary of at least 3 subwords, got {len(weight)}.")
    return ChunkedLoss.apply(states, weight, targets, label_smoothing, padding)


def cross_entropy(states: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Negative log-likelihood of the targets, summed over tokens; float64. exp of its mean is the perplexity.

    Shapes as for smoothed_cross_entropy. Used without gradients.
    """
    # log softmax(states W^T) at the targets
    return -target_log_probabilities(states, weight, targets).sum(dtype=torch.float64)
