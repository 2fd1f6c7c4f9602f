"""What only makes the model faster on a processor. Each docstring has the plain formula that the function equals.

On a GPU, and where there is nothing to gain, the functions compute the plain formula with torch. The letters of shapes
are explained in transformer.py.
"""

from __future__ import annotations

import ctypes

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

# Whether oneDNN's product can be called. torch itself uses it for bfloat16, and for float32 in compiled code. In
# float32 without its compiler torch uses MKL, which is half as fast on processors that are not Intel's.
ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")

FUSED_ABOVE = 64  # with more queries per sentence, torch's fused attention is faster in inference on a processor


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


class _Softmax(torch.autograd.Function):
    """W = softmax(scale * scores + bias) over the last dimension, in at least float32, in the precision of scores."""

    @staticmethod
    def forward(ctx, scores: Tensor, scale: float, bias: Tensor | None) -> Tensor:
        weights = scores.to(torch.promote_types(scores.dtype, torch.float32), copy=True).mul_(scale)
        if bias is not None:
            weights += bias
        weights.sub_(weights.amax(-1, keepdim=True)).exp_()
        weights.div_(weights.sum(-1, keepdim=True))
        ctx.scale = scale
        # not as an attribute of ctx: in float32 the tensor is also the result, and would never be freed
        ctx.save_for_backward(weights)
        return weights.to(scores.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor):
        """dL/dscores = scale * (G W - W sum(G W)), with G = dL/dW, element-wise products and sums over rows."""
        (weights,) = ctx.saved_tensors
        slope = gradient * weights
        slope -= weights * slope.sum(-1, keepdim=True)
        return slope.mul_(ctx.scale).to(gradient.dtype), None, None


def scaled_softmax(scores: Tensor, scale: float, bias: Tensor | None) -> Tensor:
    """softmax(scale * scores + bias) over the last dimension, for training.

    In place: no copies for the scale and the bias. Whether that beats torch's softmax depends on the processor.
    """
    return _Softmax.apply(scores, scale, bias)


def keep_mask(x: Tensor, rate: float) -> tuple[Tensor, float]:
    """A random mask for x, 1 with probability 1 - rate and else 0, and the scale that preserves the mean.

    torch computes a 64-bit random number and a division per element, which takes a fifth of a small model's training.
    Here each element gets 16 bits: the rate is rounded to a multiple of 1/65536, and the scale is 1 / (1 - the rounded
    rate). The bits come from a generator seeded by the next random number of torch, so torch's seed determines them.
    """
    threshold = min(round(rate * 65536), 65535)
    seed = int(torch.empty((), dtype=torch.int64).random_())
    bits = np.random.SFC64(seed).random_raw(-(-x.numel() // 4)).view(np.int16)[: x.numel()]
    keep = torch.from_numpy(bits).view(x.shape).ge_(threshold - 32768)  # in place: 1 or 0 as int16
    return keep.to(x.dtype), 65536 / (65536 - threshold)


class _AddDropout(torch.autograd.Function):
    """x + dropout(y), in one pass over y forward and one backward."""

    @staticmethod
    def forward(ctx, x: Tensor, y: Tensor, rate: float) -> Tensor:
        keep, ctx.scale = keep_mask(y, rate)
        ctx.save_for_backward(keep)
        return torch.addcmul(x, y, keep, value=ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor):
        (keep,) = ctx.saved_tensors
        return gradient, torch.addcmul(gradient.new_zeros(()), gradient, keep, value=ctx.scale), None


def dropout(x: Tensor, rate: float, training: bool = True) -> Tensor:
    """x with each element set to 0 with probability `rate`, else times 1 / (1 - rate); x itself outside training."""
    if x.is_cuda or not (rate and training):
        return F.dropout(x, rate, training)
    return _AddDropout.apply(x.new_zeros(()), x, rate)


def add_dropout(x: Tensor, y: Tensor, rate: float, training: bool = True) -> Tensor:
    """x + dropout(y), for x and y of one shape."""
    if x.is_cuda or not (rate and training):
        return x + F.dropout(y, rate, training)
    return _AddDropout.apply(x, y, rate)


class _ReluDropout(torch.autograd.Function):
    """dropout(relu(x)). Its gradient is the scale where the result is positive, else 0: no mask has to be stored."""

    @staticmethod
    def forward(ctx, x: Tensor, rate: float) -> Tensor:
        keep, ctx.scale = keep_mask(x, rate)
        y = torch.addcmul(x.new_zeros(()), x, keep, value=ctx.scale).clamp_(min=0)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor):
        (y,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(gradient, y, 0).mul_(ctx.scale), None


def relu_dropout(x: Tensor, rate: float, training: bool = True) -> Tensor:
    """dropout(max(0, x))."""
    if x.is_cuda or not (rate and training):
        return F.dropout(F.relu(x), rate, training)
    return _ReluDropout.apply(x, rate)


def fused_is_faster(queries: Tensor, training: bool) -> bool:
    """Whether to compute the attention of queries (B, H, T, K) with torch's fused function, not with the plain formula.

    On a processor the fused function is slow for few queries, and has no dropout.
    """
    return queries.is_cuda or (queries.shape[-2] > FUSED_ABOVE and not training)


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt(3)


def keep_freed_memory() -> None:
    """Make glibc keep the memory that this process frees. Other C libraries are not changed.

    By default glibc returns large blocks to the kernel and gets them back page by page, which takes 6 to 9% of a small
    model's training on two cores. Keeping them does not make the process grow: batches of one size need equal memory.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(M_MMAP_THRESHOLD, 32 << 20)  # the largest value that all versions accept
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
