"""Dropout (section 5.4), alone or fused with the sum or the ReLU next to it. On a CPU it uses few random bits."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable


def keep_mask(x: Tensor, rate: float) -> tuple[Tensor, float]:
    """A random mask for x on a CPU, 1 with probability 1 - rate and else 0, and the scale that preserves the mean.

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


def dropout(x: Tensor, rate: float) -> Tensor:
    """x with each element set to 0 with probability `rate`, else times 1 / (1 - rate), so that the mean stays."""
    if x.is_cuda or not rate:
        return F.dropout(x, rate)
    return _AddDropout.apply(x.new_zeros(()), x, rate)


def add_dropout(x: Tensor, y: Tensor, rate: float) -> Tensor:
    """x + dropout(y), for x and y of one shape."""
    if x.is_cuda or not rate:
        return x + F.dropout(y, rate)
    return _AddDropout.apply(x, y, rate)


class _DroppedRelu(torch.autograd.Function):
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


def dropped_relu(x: Tensor, rate: float) -> Tensor:
    """dropout(max(0, x))."""
    if x.is_cuda or not rate:
        return F.dropout(F.relu(x), rate)
    return _DroppedRelu.apply(x, rate)
