"""The moving average of the weights that follows a training."""

from __future__ import annotations

from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


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
