"""Means of weights: of several checkpoints (section 6.1), and the moving one that follows a training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


def mean_weights(paths: Sequence[Path]) -> dict[str, Tensor]:
    """Element-wise mean of checkpoints (section 6.1: "averaging the last 5 checkpoints"), summed in float64."""
    if not paths:
        raise ValueError("no checkpoint to average; run the stage train first")
    total: dict[str, Tensor] = {}
    kinds: dict[str, torch.dtype] = {}
    for path in paths:
        for name, tensor in load_file(path).items():
            total[name] = total[name].add_(tensor) if name in total else tensor.double()
            kinds[name] = tensor.dtype
    return {name: (tensor / len(paths)).to(kinds[name]) for name, tensor in total.items()}


def copy_parameters(model: nn.Module) -> dict[str, Tensor]:
    """The parameters of a model under their names, as they are now."""
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def decay_at(step: int, decay: float) -> float:
    """Decay of the moving average at update `step`, counted from 1: min(decay, (1 + step) / (10 + step)).

    It starts low, so that the random weights of the beginning are soon forgotten.
    """
    return min(decay, (1 + step) / (10 + step))


def follow(average: dict[str, Tensor], model: nn.Module, decay: float, step: int) -> None:
    """Move the average (EMA) of the parameters to decay_at * average + (1 - decay_at) * parameters, in place."""
    if average:
        parameters = dict(model.named_parameters())
        move = get_ema_multi_avg_fn(decay_at(step, decay))
        move(list(average.values()), [parameters[name] for name in average], step)
