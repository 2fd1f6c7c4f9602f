"""Means of weights: of several checkpoints (section 6.1), and the moving one that follows a training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor


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
