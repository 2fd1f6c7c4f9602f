"""Multi-head scaled dot-product attention (section 3.2). Shapes: see model.py."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from transformer.model.dropout import dropout
from transformer.model.linear import Linear

KeysValues = tuple[Tensor, Tensor]
FEW = 64  # queries of a sentence; more are left to torch's fused attention, which needs no memory for the weights


def padding_bias(source: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where attention may look and -inf at padding, to be added to its scores: (B, S) -> (B, 1, 1, S)."""
    bias = torch.zeros(source.shape, dtype=dtype, device=source.device)
    return bias.masked_fill_(source == 0, -math.inf)[:, None, None]


def causal_bias(length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """-inf where position t would look at one after t (section 3.2.3): (T, T)."""
    return torch.full((length, length), -math.inf, dtype=dtype, device=device).triu_(1)


def split_heads(x: Tensor, parts: int, heads: int) -> tuple[Tensor, ...]:
    """Cut the width into parts and these into heads: (B, T, parts * D) -> parts times (B, H, T, K)."""
    cut = tuple(part.transpose(1, 2) for part in x.unflatten(-1, (parts, heads, -1)).unbind(2))
    return cut if x.is_cuda else tuple(part.contiguous() for part in cut)  # on a GPU the kernel reads them as they lie


def merge_heads(x: Tensor) -> Tensor:
    """Undo split_heads of one part: (B, H, T, K) -> (B, T, D)."""
    return x.transpose(1, 2).flatten(2)


class _Softmax(torch.autograd.Function):
    """softmax(scale * scores + bias) over the last dimension, in at least float32, rounded to the scores' precision.

    torch's own, on a CPU, takes several times longer over rows as short as a sentence.
    """

    @staticmethod
    def forward(ctx, scores: Tensor, scale: float, bias: Tensor | None) -> Tensor:
        wide = scores.to(torch.promote_types(scores.dtype, torch.float32), copy=True).mul_(scale)
        if bias is not None:
            wide += bias
        wide.sub_(wide.amax(-1, keepdim=True)).exp_()
        wide.div_(wide.sum(-1, keepdim=True))
        ctx.scale = scale
        ctx.save_for_backward(wide)  # in float32 it is the result, which would never be freed as an attribute of ctx
        return wide.to(scores.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor):
        (weights,) = ctx.saved_tensors
        slope = gradient * weights
        slope -= weights * slope.sum(-1, keepdim=True)
        return slope.mul_(ctx.scale).to(gradient.dtype), None, None


class KeyValueCache:
    """Keys and values of the subwords decoded so far, all N beams of a sentence side by side, grown in place."""

    def __init__(self) -> None:
        self.length = 0  # t*N
        self.buffer: Tensor | None = None  # (2, B, H, at least t*N, K)

    def append(self, keys: Tensor, values: Tensor) -> KeysValues:
        """Add those of one more subword, (B, H, N, K) each. Returns all, (B, H, t*N, K) each."""
        before, self.length = self.length, self.length + keys.shape[2]
        if self.buffer is None or self.length > self.buffer.shape[3]:
            count, heads, _, width = keys.shape
            wider = keys.new_empty(2, count, heads, 2 * self.length, width)
            if self.buffer is not None:
                wider[:, :, :, :before] = self.buffer[:, :, :, :before]
            self.buffer = wider
        used = self.buffer[:, :, :, : self.length]
        used[0, :, :, before:], used[1, :, :, before:] = keys, values
        return used[0], used[1]

    def select(self, rows: Tensor) -> None:
        """Go on with some sentences only."""
        if self.buffer is not None:
            self.buffer = self.buffer[:, :, :, : self.length][:, rows]


class Attention(nn.Module):
    """Several heads of scaled dot-product attention (equation 1): softmax(Q K^T / sqrt(K)) V each."""

    def __init__(self, d_model: int, heads: int, dropout: float):
        super().__init__()
        if d_model % heads:
            raise ValueError(f"d_model={d_model} does not divide into heads={heads}; change one of them in params.yaml")
        self.heads, self.dropout = heads, dropout
        self.project = Linear(d_model, 3 * d_model)  # rows: queries, keys, values
        self.output = Linear(d_model, d_model)
        for rows in self.project.weight.chunk(3):
            nn.init.xavier_uniform_(rows)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.project.bias)
        nn.init.zeros_(self.output.bias)

    def forward(self, x: Tensor, memory: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        """Let x (B, T, D) attend to memory (B, S, D), or to itself. Returns (B, T, D).

        bias, of a shape that broadcasts to (B, H, T, S), is added to the scores: -inf forbids a look.
        """
        queries, keys, values = (
            self.queries_keys_values(x) if memory is None else (self.queries(x), *self.keys_values(memory))
        )
        return self.attend(queries, (keys, values), bias)

    def queries_keys_values(self, x: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values of x, in one product: (B, T, D) -> three times (B, H, T, K)."""
        return split_heads(self.project(x), 3, self.heads)

    def queries(self, x: Tensor) -> Tensor:
        """Queries of x: (B, T, D) -> (B, H, T, K)."""
        return split_heads(self.project(x, slice(None, x.shape[-1])), 1, self.heads)[0]

    def keys_values(self, memory: Tensor) -> KeysValues:
        """Keys and values of memory: (B, S, D) -> twice (B, H, S, K)."""
        keys, values = split_heads(self.project(memory, slice(memory.shape[-1], None)), 2, self.heads)
        return keys, values

    def attend(self, queries: Tensor, keys_values: KeysValues, bias: Tensor | None) -> Tensor:
        """Queries (B, H, T, K) look at keys and values (B, H, S, K). Returns (B, T, D), projected."""
        keys, values = keys_values
        if queries.is_cuda or (queries.shape[-2] > FEW and not self.training):
            rate = self.dropout if self.training else 0.0
            seen = F.scaled_dot_product_attention(queries, keys, values, attn_mask=bias, dropout_p=rate)
        else:  # on a CPU torch's kernel knows no dropout, and is slow where queries are few
            weights = self.weights(queries, keys, bias)
            seen = (dropout(weights, self.dropout) if self.training else weights) @ values
        return self.output(merge_heads(seen))

    def weights(self, queries: Tensor, keys: Tensor, bias: Tensor | None) -> Tensor:
        """Where queries (B, H, T, K) look among keys (B, H, S, K) (equation 1): (B, H, T, S), rows sum to 1."""
        if not self.training:
            scores = (queries * queries.shape[-1] ** -0.5) @ keys.transpose(-2, -1)
            return (scores if bias is None else scores.add_(bias)).softmax(-1)
        return _Softmax.apply(queries @ keys.transpose(-2, -1), queries.shape[-1] ** -0.5, bias)
