"""Dropout (section 5.4), alone and together with what stands beside it; on a CPU drawn from few random bits."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable


def kept(x: Tensor, rate: float) -> tuple[Tensor, float]:
    """Which elements of x, on a CPU, stay: 1 with probability 1 - rate, else 0; and the scale that keeps the mean.

    torch spends a 64-bit random number and a division on each, a fifth of a small model's training. 16 bits do: the
    rate is rounded to 1/65536 and the scale is the inverse of the rounded share. The bits are those of a generator
    seeded by the next number of torch's, so torch's seed decides them.
    """
    threshold = min(round(rate * 65536), 65535)
    seed = int(torch.empty((), dtype=torch.int64).random_())
    bits = np.random.SFC64(seed).random_raw(-(-x.numel() // 4)).view(np.int16)[: x.numel()]
    keep = torch.from_numpy(bits).view(x.shape).ge_(threshold - 32768)  # in place, so 1 or 0 in 16 bits
    return keep.to(x.dtype), 65536 / (65536 - threshold)


class _AddDropout(torch.autograd.Function):
    """x + dropout(y), in one pass over y each way."""

    @staticmethod
    def forward(ctx, x: Tensor, y: Tensor, rate: float) -> Tensor:
        keep, ctx.scale = kept(y, rate)
        ctx.save_for_backward(keep)
        return torch.addcmul(x, y, keep, value=ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor):
        (keep,) = ctx.saved_tensors
        return gradient, torch.addcmul(gradient.new_zeros(()), gradient, keep, value=ctx.scale), None


def dropout(x: Tensor, rate: float) -> Tensor:
    """Zero elements with probability `rate` and scale the others up by 1 / (1 - rate), so that the mean stays."""
    if x.is_cuda or not rate:
        return F.dropout(x, rate)
    return _AddDropout.apply(x.new_zeros(()), x, rate)


def add_dropout(x: Tensor, y: Tensor, rate: float) -> Tensor:
    """x + dropout(y), of one shape."""
    if x.is_cuda or not rate:
        return x + F.dropout(y, rate)
    return _AddDropout.apply(x, y, rate)


class _DroppedRelu(torch.autograd.Function):
    """dropout(relu(x)): a positive result says all that the gradient needs to know."""

    @staticmethod
    def forward(ctx, x: Tensor, rate: float) -> Tensor:
        keep, ctx.scale = kept(x, rate)
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
