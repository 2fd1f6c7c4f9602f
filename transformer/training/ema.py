"""The moving average (EMA) of the weights during a training."""

from __future__ import annotations

from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


def copy_parameters(model: nn.Module) -> dict[str, Tensor]:
    """Copies of a model's current parameters, under their names."""
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def decay_at(step: int, decay: float) -> float:
    """The decay of the moving average at update `step`, counted from 1: min(decay, (1 + step) / (10 + step)).

    The decay is low at first, so that the random initial weights soon lose their influence.
    """
    return min(decay, (1 + step) / (10 + step))


def update_ema(ema: dict[str, Tensor], model: nn.Module, decay: float, step: int) -> None:
    """Set the moving average, in place, to d * ema + (1 - d) * parameters, where d = decay_at(step, decay).

    ema: parameter name -> tensor; nothing happens if it is empty.
    """
    if ema:
        parameters = dict(model.named_parameters())
        update = get_ema_multi_avg_fn(decay_at(step, decay))
        update(list(ema.values()), [parameters[name] for name in ema], step)
