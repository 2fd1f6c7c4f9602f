"""The product of activations and a weight matrix, with the library that is fast at it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# oneDNN's product, which torch uses for bfloat16 and, on the way through its compiler, for float32. Called by itself
# torch takes MKL for float32, which is half as fast on processors that are not Intel's.
ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether a device has instructions for products in bfloat16: processors with avx512_bf16, amx_bf16 or ARM's bf16.

    Without them float32 is faster: 45 to 500 times without AVX-512 (seen here and in torch's issue 146508), twice where
    oneDNN imitates them by AVX-512 (as its issue 493 says).
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    able = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    has = torch.cpu.get_capabilities()  # names neither on ARM, where able says it all
    return able and (has.get("avx512_bf16", True) or has.get("amx_bf16", True))


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
