"""The product of activations and a weight matrix, by the fastest library for the device."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Whether oneDNN's product can be called. torch itself uses it for bfloat16, and for float32 in compiled code. In
# float32 without its compiler torch uses MKL, which is half as fast on processors that are not Intel's.
ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether a device has instructions for products in bfloat16. Processors: avx512_bf16, amx_bf16 or ARM's bf16.

    Without these instructions float32 is faster: 45 to 500 times on a processor without AVX-512 (measured here, and in
    torch's issue 146508), 2 times where oneDNN emulates them with AVX-512 (its issue 493).
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    supported = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    has = torch.cpu.get_capabilities()  # on ARM it lists neither key, and `supported` is enough
    return supported and (has.get("avx512_bf16", True) or has.get("amx_bf16", True))


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b for a weight W (rows, columns) and a bias b (rows,): (..., columns) -> (..., rows)."""
    if ONEDNN and x.dtype == torch.float32 and x.device.type == "cpu" and not torch.is_grad_enabled():
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return F.linear(x, weight, bias)


class Linear(nn.Linear):
    """x W^T + b in the precision of x: if x is bfloat16, weights stored in float32 are rounded to bfloat16."""

    def forward(self, x: Tensor, rows: slice | None = None) -> Tensor:
        """The product with all rows of W, or with the slice `rows` of them: (..., columns) -> (..., rows)."""
        weight, bias = (self.weight, self.bias) if rows is None else (self.weight[rows], self.bias[rows])
        return product(x, weight.to(x.dtype), bias.to(x.dtype))
