"""Multi-head scaled dot-product attention (section 3.2). The letters of shapes are explained in transformer.py."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer.model.cpu import Linear, dropout, fused_is_faster, scaled_softmax

KeysValues = tuple[Tensor, Tensor]  # keys (B, H, S, K) and values (B, H, S, D/H)


def attention_weights(queries: Tensor, keys: Tensor, bias: Tensor | None, training: bool = False) -> Tensor:
    """softmax(Q K^T / sqrt(d_k) + bias) for queries (B, H, T, K) and keys (B, H, S, K) (equation 1): (B, H, T, S)."""
    scale = queries.shape[-1] ** -0.5
    if not training:
        scores = (queries * scale) @ keys.transpose(-2, -1)
        return (scores if bias is None else scores + bias).softmax(-1)
    return scaled_softmax(queries @ keys.transpose(-2, -1), scale, bias)  # the same, in place


def attention(
    queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, rate: float, training: bool
) -> Tensor:
    """dropout(softmax(Q K^T / sqrt(d_k) + bias)) V (equation 1), for values (B, H, S, D/H): (B, H, T, D/H).

    torch's fused attention is the same and never stores the weights.
    """
    if fused_is_faster(queries, training):
        dropped = rate if training else 0.0
        return F.scaled_dot_product_attention(queries, keys, values, attn_mask=bias, dropout_p=dropped)
    return dropout(attention_weights(queries, keys, bias, training), rate, training) @ values


def padding_bias(source: Tensor, dtype: torch.dtype) -> Tensor:
    """Source ids to a bias for attention scores: 0 at subwords, -inf at padding: (B, S) -> (B, 1, 1, S)."""
    bias = torch.zeros(source.shape, dtype=dtype, device=source.device)
    return bias.masked_fill_(source == 0, -math.inf)[:, None, None]


def causal_bias(length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A bias that keeps position t from attending to later ones (section 3.2.3): (T, T), -inf above the diagonal."""
    return torch.full((length, length), -math.inf, dtype=dtype, device=device).triu_(1)


def split_heads(x: Tensor, widths: Sequence[int], heads: int) -> tuple[Tensor, ...]:
    """Cut the width into parts, and each part into heads: (B, T, sum of widths) -> (B, H, T, width / H) for each part.

    widths: of the parts. Parts of one width are cut in one operation: their gradients are then joined by one copy.
    """
    if len(set(widths)) == 1:
        parts = x.unflatten(-1, (len(widths), heads, -1)).unbind(2)  # (B, T, H, width / H) each
    else:
        parts = [part.unflatten(-1, (heads, -1)) for part in x.split(widths, -1)]
    split = tuple(part.transpose(1, 2) for part in parts)
    return split if x.is_cuda else tuple(part.contiguous() for part in split)  # GPU kernels read any strides


def merge_heads(x: Tensor) -> Tensor:
    """Join the heads, the inverse of split_heads for one part: (B, H, T, D/H) -> (B, T, D)."""
    return x.transpose(1, 2).flatten(2)  # (B, T, H, D/H) -> (B, T, D)


class KeyValueCache:
    """Keys and values of one decoder layer, of all subwords decoded so far.

    The beams of a sentence share one dimension: the keys and values of beam n at position i have the index i * N + n.
    """

    def __init__(self) -> None:
        self.length = 0  # t*N
        self.buffers: KeysValues | None = None  # (B, H, at least t*N, ...); they double when they are full

    def append(self, keys: Tensor, values: Tensor) -> KeysValues:
        """Add keys (B, H, N, K) and values (B, H, N, D/H) of the next position. Returns those of all t positions."""
        before, self.length = self.length, self.length + keys.shape[2]
        if self.buffers is None or self.length > self.buffers[0].shape[2]:
            larger = tuple(new.new_empty(*new.shape[:2], 2 * self.length, new.shape[3]) for new in (keys, values))
            for buffer, old in zip(larger, self.buffers or (), strict=False):
                buffer[:, :, :before] = old[:, :, :before]
            self.buffers = larger[0], larger[1]
        used = self.buffers[0][:, :, : self.length], self.buffers[1][:, :, : self.length]
        used[0][:, :, before:], used[1][:, :, before:] = keys, values
        return used

    def select(self, rows: Tensor) -> None:
        """Keep only the sentences with the indices `rows`."""
        if self.buffers is not None:
            keys, values = self.buffers
            self.buffers = keys[:, :, : self.length][rows], values[:, :, : self.length][rows]


class Attention(nn.Module):
    """Multi-head attention: MultiHead(Q, K, V) = Concat(head_1, .., head_H) W_O (section 3.2.2).

    Each head is Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V (equation 1), with its own projections to Q, K and V.
    key_size: K; 0: D / H.
    """

    def __init__(self, d_model: int, heads: int, dropout: float, key_size: int = 0):
        super().__init__()
        assert d_model % heads == 0
        self.heads, self.dropout = heads, dropout
        width = heads * (key_size or d_model // heads)
        self.widths = width, width, d_model  # of the queries, keys and values of all heads: H*K, H*K, D
        self.project = Linear(d_model, sum(self.widths))  # the rows of its matrix are in this order
        self.output = Linear(d_model, d_model)
        for rows in self.project.weight.split(self.widths):
            nn.init.xavier_uniform_(rows)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.project.bias)
        nn.init.zeros_(self.output.bias)

    def forward(self, x: Tensor, memory: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        """Queries from x attend to keys and values from memory (B, S, D), or from x: (B, T, D) -> (B, T, D).

        bias: added to the scores, of a shape that broadcasts to (B, H, T, S); -inf gives a position the weight 0.
        """
        if memory is None:
            queries, keys_values = self.queries_keys_values(x)
        else:
            queries, keys_values = self.queries(x), self.keys_values(memory)
        return self.attend(queries, keys_values, bias)

    def queries_keys_values(self, x: Tensor) -> tuple[Tensor, KeysValues]:
        """Queries of x, and keys and values of x, from one product; see `queries` and `keys_values`."""
        queries, keys, values = split_heads(self.project(x), self.widths, self.heads)
        return queries, (keys, values)

    def queries(self, x: Tensor) -> Tensor:
        """Queries of x: (B, T, D) -> (B, H, T, K)."""
        return split_heads(self.project(x, slice(None, self.widths[0])), self.widths[:1], self.heads)[0]

    def keys_values(self, memory: Tensor) -> KeysValues:
        """Keys and values of memory: (B, S, D) -> keys (B, H, S, K), values (B, H, S, D/H)."""
        keys, values = split_heads(self.project(memory, slice(self.widths[0], None)), self.widths[1:], self.heads)
        return keys, values

    def attend(self, queries: Tensor, keys_values: KeysValues, bias: Tensor | None) -> Tensor:
        """The output of attention for queries (B, H, T, K) over keys and values (see keys_values): (B, T, D)."""
        heads = attention(queries, *keys_values, bias, self.dropout, self.training)  # (B, H, T, D/H)
        return self.output(merge_heads(heads))

    def weights(self, queries: Tensor, keys: Tensor, bias: Tensor | None) -> Tensor:
        """The weights of queries (B, H, T, K) over keys (B, H, S, K), before dropout: (B, H, T, S)."""
        return attention_weights(queries, keys, bias, self.training)
