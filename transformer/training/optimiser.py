"""The optimisers: Adam, the paper's (section 5.3), or Muon for matrices with Adam for the other weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Adam

from transformer.model.transformer import Transformer

MATRIX_RATE = 2.0  # Muon's learning rate / Adam's; on Multi30k the loss was measured to fall faster than with 1
MOMENTUM = 0.95  # Jordan et al. 2024
# The most numbers in the matrices that are made orthogonal at a time, because memory holds a few copies of them.
NUMBERS_AT_ONCE = 2**24
A, B, C = 3.4445, -4.7750, 2.0315  # coefficients of the polynomial in `orthogonal` (Jordan et al. 2024)


def orthogonal(matrices: Tensor, rounds: int = 5) -> Tensor:
    """Replace the singular values of matrices (N, rows, columns) by values near 1: the Newton-Schulz iteration.

    It computes in the precision of the matrices. A singular value above 0.002 of the matrix's norm becomes one between
    0.68 and 1.21 (Jordan et al. 2024).
    """
    tall = matrices.size(1) > matrices.size(2)
    x = matrices.mT if tall else matrices
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=1e-7)
    for _ in range(rounds):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Subtracts from matrices the Nesterov momentum of their gradients, made orthogonal (Jordan et al. 2024).

    The root mean square of a step is 0.2 learning rates, like Adam's (Liu et al. 2025). The steps equal those of
    torch.optim.Muon, which computes one matrix at a time, and in bfloat16 even where that is 20 times slower.

    precision: that of `orthogonal`.
    """

    def __init__(self, matrices: Sequence[Tensor], precision: torch.dtype):
        shapes: dict[torch.Size, list[Tensor]] = {}
        for matrix in matrices:
            shapes.setdefault(matrix.shape, []).append(matrix)
        groups: list[dict[str, Any]] = []
        for same_shape in shapes.values():
            count = max(1, NUMBERS_AT_ONCE // same_shape[0].numel())
            groups += [{"params": same_shape[start : start + count]} for start in range(0, len(same_shape), count)]
        super().__init__(groups, {"lr": 0.0})
        self.precision = precision

    @torch.no_grad()
    def step(self) -> None:
        """Update the matrices from their gradients. Those of a group have one shape and are computed together."""
        for group in self.param_groups:
            matrices, directions = group["params"], []
            for matrix in matrices:
                if "momentum_buffer" not in self.state[matrix]:
                    self.state[matrix]["momentum_buffer"] = torch.zeros_like(matrix)
                momentum = self.state[matrix]["momentum_buffer"].lerp_(matrix.grad, 1 - MOMENTUM)
                directions.append(matrix.grad.lerp(momentum, MOMENTUM))
            step_size = 0.2 * group["lr"] * max(matrices[0].shape) ** 0.5
            for matrix, direction in zip(matrices, orthogonal(torch.stack(directions).to(self.precision)), strict=True):
                matrix.sub_(direction, alpha=step_size)


class Optimiser:
    """Updates the weights of a model from their gradients.

    kind adam: Adam for all weights (Kingma and Ba 2015; section 5.3). kind muon: Muon for the matrices of attention and
    feed-forward, in the precision of the model's products; Adam for embeddings, biases and norms.
    """

    def __init__(self, model: Transformer, kind: str, beta1: float, beta2: float, epsilon: float):
        layers = [*model.encoder.parameters(), *model.decoder.parameters()]
        matrices = [weight for weight in layers if weight.ndim == 2] if kind == "muon" else []
        muon_weights = set(matrices)
        rest = [weight for weight in model.parameters() if weight not in muon_weights]
        self.parts: list[Adam | Muon] = [Adam(rest, lr=0.0, betas=(beta1, beta2), eps=epsilon, fused=True)]
        if matrices:
            self.parts.append(Muon(matrices, model.compute or matrices[0].dtype))
        self.names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}

    def step(self, rate: float) -> None:
        """Update the weights from their gradients. rate: Adam's learning rate; Muon's is MATRIX_RATE times as large."""
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = rate * (MATRIX_RATE if isinstance(part, Muon) else 1.0)
            part.step()

    def tensors(self) -> dict[str, Tensor]:
        """The state that the next update needs: `kind.parameter name` -> tensor; empty before the first update."""
        return {
            f"{kind}.{self.names[parameter]}": tensor
            for part in self.parts
            for parameter, state in part.state.items()
            for kind, tensor in state.items()
            if kind != "step"
        }

    def restore(self, tensors: dict[str, Tensor], step: int) -> None:
        """Restore the state that `tensors` returned after update `step`."""
        for part in self.parts:
            adam = isinstance(part, Adam)
            kinds = ("exp_avg", "exp_avg_sq") if adam else ("momentum_buffer",)
            for parameter in (parameter for group in part.param_groups for parameter in group["params"]):
                device, name = parameter.device, self.names[parameter]
                state = {kind: tensors[f"{kind}.{name}"].to(device, copy=True) for kind in kinds}
                part.state[parameter] = state | ({"step": torch.tensor(float(step), device=device)} if adam else {})
