"""The product of activations and a weight matrix, with the library that is fast at it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# oneDNN's product, which torch uses for bfloat16 and, on the way through its compiler, for float32. Called by itself
# torch takes MKL for float32, which is half as fast on processors that are not Intel's.
ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether a device has instructions for matrices in bfloat16: with torch, processors from AVX-512 on.

    Without them torch takes 45 to 500 times as long as in float32 (seen here, and in its issue 146508).
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b: (..., columns) -> (..., rows)."""
    if ONEDNN and x.dtype == torch.float32 and x.device.type == "cpu" and not torch.is_grad_enabled():
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return F.linear(x, weight, bias)


class Linear(nn.Linear):
    """x W + b in the precision of x: weights kept in float32 are rounded to bfloat16 where x is bfloat16."""

    def forward(self, x: Tensor, rows: slice | None = None) -> Tensor:
        """By all rows of W, or some: (..., columns) -> (..., rows)."""
        weight, bias = (self.weight, self.bias) if rows is None else (self.weight[rows], self.bias[rows])
        return product(x, weight.to(x.dtype), bias.to(x.dtype))
