"""Adam, as the paper trains with (section 5.3), or Muon beside it; both as torch has them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim import Adam, Muon

from transformer.model import Transformer

MATRIX_RATE = 2.0  # Muon's learning rate over Adam's: measured on Multi30k, the loss falls faster than with 1


class Optimiser:
    """Turns gradients into new weights.

    adam: Adam for all weights (Kingma and Ba 2015; section 5.3). muon: for the matrices of attention and feed-forward
    the momentum of their gradients made orthogonal (Jordan et al. 2024), of a root mean square of 0.2 times Muon's
    learning rate, as Adam's updates have it (Liu et al. 2025); Adam for embeddings, biases and norms.
    """

    def __init__(self, model: Transformer, kind: str, beta1: float, beta2: float, epsilon: float):
        layers = [*model.encoder.parameters(), *model.decoder.parameters()]
        matrices = [weight for weight in layers if weight.ndim == 2] if kind == "muon" else []
        taken = set(matrices)
        rest = [weight for weight in model.parameters() if weight not in taken]
        self.parts: list[Adam | Muon] = [Adam(rest, lr=0.0, betas=(beta1, beta2), eps=epsilon, fused=True)]
        if matrices:
            self.parts.append(Muon(matrices, lr=0.0, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"))
        self.names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}

    def step(self, rate: float) -> None:
        """Update the weights from their gradients with this learning rate."""
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = rate * (MATRIX_RATE if isinstance(part, Muon) else 1.0)
            part.step()

    def tensors(self) -> dict[str, Tensor]:
        """All that the next update depends on, under `kind.name of the parameter`; empty before the first update."""
        return {
            f"{kind}.{self.names[parameter]}": tensor
            for part in self.parts
            for parameter, state in part.state.items()
            for kind, tensor in state.items()
            if kind != "step"
        }

    def restore(self, tensors: dict[str, Tensor], step: int) -> None:
        """Put back what `tensors` gave after update `step`."""
        for part in self.parts:
            adam = isinstance(part, Adam)
            kinds = ("exp_avg", "exp_avg_sq") if adam else ("momentum_buffer",)
            for parameter in part.param_groups[0]["params"]:
                device, name = parameter.device, self.names[parameter]
                state = {kind: tensors[f"{kind}.{name}"].to(device, copy=True) for kind in kinds}
                part.state[parameter] = state | ({"step": torch.tensor(float(step), device=device)} if adam else {})
