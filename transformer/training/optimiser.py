"""Section 5.3: the learning rate and Adam, or Muon for matrices with Adam for the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor
from torch.optim.adam import adam

from transformer.files import Mistake
from transformer.model.attention import Attention
from transformer.model.transformer import Transformer
from transformer.training.config import TrainConfig

MOMENTUM = 0.95  # Jordan et al. 2024
# The most numbers in the matrices that are made orthogonal at a time, because memory holds a few copies of them.
NUMBERS_AT_ONCE = 2**24
A, B, C = 3.4445, -4.7750, 2.0315  # coefficients of the polynomial in `orthogonalise` (Jordan et al. 2024)


def learning_rate(step: int, d_model: int, warmup: int, factor: float = 1.0) -> float:
    """The learning rate of update `step`, counted from 1 (equation 3).

    It rises linearly for `warmup` updates to its peak, factor / sqrt(d_model * warmup), then falls with 1 / sqrt(step).
    Raises Mistake for a step or warmup below 1.
    """
    if step < 1 or warmup < 1:
        raise Mistake(f"step={step} and warmup={warmup} must be at least 1. Both count updates.")
    return factor * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def orthogonalise(matrices: Tensor, rounds: int = 5) -> Tensor:
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


def gradients_of(weights: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of weights."""
    return [cast("Tensor", weight.grad) for weight in weights]


class Adam:
    """Adam (Kingma and Ba 2015; section 5.3), by torch's fused operation.

    torch.optim.Adam makes the same steps, but its class imports torch's compiler, which takes 3 s. state: weight ->
    its two moments and the number of its steps.
    """

    def __init__(self, weights: Sequence[Tensor], config: TrainConfig):
        self.weights, self.config = list(weights), config
        self.state = {
            weight: {
                "exp_avg": torch.zeros_like(weight),
                "exp_avg_sq": torch.zeros_like(weight),
                "step": torch.zeros((), device=weight.device),
            }
            for weight in self.weights
        }

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Update the weights. rate: the learning rate."""
        states = [self.state[weight] for weight in self.weights]
        adam(
            self.weights,
            gradients_of(self.weights),
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            fused=True,
            amsgrad=False,
            beta1=self.config.adam_beta1,
            beta2=self.config.adam_beta2,
            lr=rate,
            weight_decay=0.0,
            eps=self.config.adam_epsilon,
            maximize=False,
        )


class Muon:
    """Subtracts from matrices (R, C) the Nesterov momentum of their gradients, made orthogonal (Jordan et al. 2024).

    step = learning rate * 0.2 * sqrt(max(R, C)) * orthogonalise(momentum). The factor gives a step the root mean square
    of 0.2 learning rates, like Adam's (Liu et al. 2025). The steps equal those of torch.optim.Muon, which computes one
    matrix at a time, and in bfloat16 even where that is 20 times slower.

    matrices: (matrix, heights) of each. The rows of a matrix are cut into parts of these heights, parts of equal height
    next to each other, and each part is made orthogonal by itself. precision: that of `orthogonalise`. state: matrix ->
    its momentum.
    """

    def __init__(self, matrices: Sequence[tuple[Tensor, tuple[int, ...]]], precision: torch.dtype):
        alike: dict[tuple[torch.Size, tuple[int, ...]], list[Tensor]] = {}
        for matrix, parts in matrices:
            alike.setdefault((matrix.shape, parts), []).append(matrix)
        self.groups: list[tuple[tuple[int, ...], list[Tensor]]] = []  # (parts, matrices) of one shape
        for (shape, parts), same in alike.items():
            count = max(1, NUMBERS_AT_ONCE // shape.numel())
            self.groups += [(parts, same[start : start + count]) for start in range(0, len(same), count)]
        self.weights = [matrix for _, group in self.groups for matrix in group]
        self.state = {weight: {"momentum_buffer": torch.zeros_like(weight)} for weight in self.weights}
        self.precision = precision

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Update the matrices; those of a group together. rate: the learning rate."""
        for all_parts, matrices in self.groups:
            directions = []
            for matrix, gradient in zip(matrices, gradients_of(matrices), strict=True):
                momentum = self.state[matrix]["momentum_buffer"].lerp_(gradient, 1 - MOMENTUM)
                directions.append(gradient.lerp(momentum, MOMENTUM))
            directions = torch.stack(directions).to(self.precision)  # (N, rows, C)
            steps, sides, start = [], [], 0
            for height, parts in Counter(all_parts).items():  # parts of one height follow each other
                rows, start = slice(start, start + parts * height), start + parts * height
                cut = directions[:, rows].unflatten(1, (parts, height)).flatten(0, 1)  # (N * parts, R, C)
                sides.append(max(cut.shape[1:]) ** 0.5)
                step = orthogonalise(cut).unflatten(0, (-1, parts)).flatten(1, 2)  # (N, parts * R, C)
                steps.append(step * (sides[-1] / sides[0]))
            for matrix, step in zip(matrices, torch.cat(steps, 1), strict=True):
                matrix.sub_(step, alpha=0.2 * rate * sides[0])


def layer_matrices(model: Transformer) -> list[tuple[Tensor, tuple[int, ...]]]:
    """The matrices of attention and feed-forward, each with the numbers of rows of the projections that it holds.

    The matrix of an attention holds three: the projections to queries, keys and values.
    """
    three = {module.project.weight: module.widths for module in model.modules() if isinstance(module, Attention)}
    layers = [*model.encoder.parameters(), *model.decoder.parameters()]
    return [(weight, three.get(weight, (len(weight),))) for weight in layers if weight.ndim == 2]


class Optimiser:
    """Updates the weights of a model from their gradients.

    optimiser adam: Adam for all weights (Kingma and Ba 2015; section 5.3). optimiser muon: Muon for the matrices of
    attention and feed-forward, in the precision of the model's products; Adam for embeddings, biases and norms.
    """

    def __init__(self, model: Transformer, config: TrainConfig):
        matrices = layer_matrices(model) if config.optimiser == "muon" else []
        muon_weights = {matrix for matrix, _ in matrices}
        rest = [weight for weight in model.parameters() if weight not in muon_weights]
        self.optimisers: list[Adam | Muon] = [Adam(rest, config)]
        if matrices:
            self.optimisers.append(Muon(matrices, model.compute or matrices[0][0].dtype))
        self.muon_factor = config.muon_factor
        self.names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}

    def step(self, rate: float) -> None:
        """Update the weights from their gradients. rate: Adam's learning rate; Muon's is muon_factor times as large."""
        for optimiser in self.optimisers:
            optimiser.step(rate * (self.muon_factor if isinstance(optimiser, Muon) else 1.0))

    def tensors(self) -> dict[str, Tensor]:
        """The state that the next update needs: `kind.parameter name` -> tensor."""
        return {
            f"{kind}.{self.names[parameter]}": tensor
            for optimiser in self.optimisers
            for parameter, state in optimiser.state.items()
            for kind, tensor in state.items()
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore the state that `tensors` returned."""
        for optimiser in self.optimisers:
            for weight, state in optimiser.state.items():
                for kind, tensor in state.items():
                    tensor.copy_(tensors[f"{kind}.{self.names[weight]}"])
