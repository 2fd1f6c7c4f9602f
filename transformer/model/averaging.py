"""The mean of the weights of several checkpoints (section 6.1)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from transformer.model.weights import read_weights


def mean_weights(paths: Sequence[Path]) -> dict[str, Tensor]:
    """Checkpoint files to their element-wise mean, name -> tensor (section 6.1: "averaging the last 5 checkpoints").

    The sum is computed in float64. Each mean has the precision that the tensor has in the checkpoints.
    """
    if not paths:
        raise ValueError("There is no checkpoint to average. Train first.")
    total: dict[str, Tensor] = {}
    precisions: dict[str, torch.dtype] = {}
    for path in paths:
        for name, tensor in read_weights(path).items():
            total[name] = total[name].add_(tensor) if name in total else tensor.double()
            precisions[name] = tensor.dtype
    return {name: (tensor / len(paths)).to(precisions[name]) for name, tensor in total.items()}
