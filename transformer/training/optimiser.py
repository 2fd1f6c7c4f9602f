"""Adam, as the paper trains with (section 5.3), or Muon beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Adam

from transformer.model.transformer import Transformer

MATRIX_RATE = 2.0  # Muon's learning rate over Adam's: measured on Multi30k, the loss falls faster than with 1
MOMENTUM = 0.95  # Jordan et al. 2024
TOGETHER = 2**24  # numbers in the matrices that are made orthogonal at a time: a few copies of them are in memory
A, B, C = 3.4445, -4.7750, 2.0315  # of the polynomial that brings singular values near 1; by the same


def orthogonal(matrices: Tensor, rounds: int = 5) -> Tensor:
    """Matrices (N, rows, columns) with singular values near 1 in place of their own: Newton and Schulz's iteration.

    In their precision. Values above 0.002 of a matrix's norm end between 0.68 and 1.21 (Jordan et al. 2024).
    """
    high = matrices.size(1) > matrices.size(2)
    x = matrices.mT if high else matrices
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=1e-7)
    for _ in range(rounds):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return x.mT if high else x


class Muon(torch.optim.Optimizer):
    """Moves matrices by the Nesterov momentum of their gradients, made orthogonal (Jordan et al. 2024).

    The root mean square of a step is 0.2 learning rates, as of Adam's (Liu et al. 2025). Steps as torch.optim.Muon's,
    which takes one matrix at a time and computes in bfloat16 also where a processor is 20 times slower with it.
    """

    def __init__(self, matrices: Sequence[Tensor], precision: torch.dtype):
        shapes: dict[torch.Size, list[Tensor]] = {}
        for matrix in matrices:
            shapes.setdefault(matrix.shape, []).append(matrix)
        groups: list[dict[str, Any]] = []
        for alike in shapes.values():
            most = max(1, TOGETHER // alike[0].numel())
            groups += [{"params": alike[start : start + most]} for start in range(0, len(alike), most)]
        super().__init__(groups, {"lr": 0.0})
        self.precision = precision

    @torch.no_grad()
    def step(self) -> None:
        """Update the matrices from their gradients, several of one shape together."""
        for group in self.param_groups:
            matrices, directions = group["params"], []
            for matrix in matrices:
                if "momentum_buffer" not in self.state[matrix]:
                    self.state[matrix]["momentum_buffer"] = torch.zeros_like(matrix)
                momentum = self.state[matrix]["momentum_buffer"].lerp_(matrix.grad, 1 - MOMENTUM)
                directions.append(matrix.grad.lerp(momentum, MOMENTUM))
            size = 0.2 * group["lr"] * max(matrices[0].shape) ** 0.5
            for matrix, direction in zip(matrices, orthogonal(torch.stack(directions).to(self.precision)), strict=True):
                matrix.sub_(direction, alpha=size)


class Optimiser:
    """Turns gradients into new weights.

    adam: Adam for all weights (Kingma and Ba 2015; section 5.3). muon: for the matrices of attention and feed-forward
    the momentum of their gradients made orthogonal, in the precision of the model's products; Adam for embeddings,
    biases and norms.
    """

    def __init__(self, model: Transformer, kind: str, beta1: float, beta2: float, epsilon: float):
        layers = [*model.encoder.parameters(), *model.decoder.parameters()]
        matrices = [weight for weight in layers if weight.ndim == 2] if kind == "muon" else []
        taken = set(matrices)
        rest = [weight for weight in model.parameters() if weight not in taken]
        self.parts: list[Adam | Muon] = [Adam(rest, lr=0.0, betas=(beta1, beta2), eps=epsilon, fused=True)]
        if matrices:
            self.parts.append(Muon(matrices, model.compute or matrices[0].dtype))
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
            for parameter in (parameter for group in part.param_groups for parameter in group["params"]):
                device, name = parameter.device, self.names[parameter]
                state = {kind: tensors[f"{kind}.{name}"].to(device, copy=True) for kind in kinds}
                part.state[parameter] = state | ({"step": torch.tensor(float(step), device=device)} if adam else {})
