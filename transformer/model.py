"""The encoder-decoder Transformer of "Attention Is All You Need" (Vaswani et al. 2017), bottom up.

Shapes, one letter per dimension in the whole package:
    B sentences · S source subwords · T target subwords · D d_model · F d_ff · H heads · K = D / H · V vocabulary
    N beams of one sentence
"""

from __future__ import annotations

import math
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

KeysValues = tuple[Tensor, Tensor]


def split_heads(x: Tensor, heads: int) -> Tensor:
    """Cut the width into heads: (B, T, D) -> (B, H, T, K)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """Undo split_heads: (B, H, T, K) -> (B, T, D)."""
    return x.transpose(1, 2).flatten(2)


def sinusoids(length: int, d_model: int) -> Tensor:
    """Position encodings (section 3.5): sin and cos of pos / 10000^(2i / D) in turn. Returns (length, D), float64."""
    angles = torch.arange(length, dtype=torch.float64)[:, None] * torch.exp(
        torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10000.0) / d_model)
    )
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)  # (length, D/2, 2) -> (length, D)


def padding_bias(source: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where attention may look and -inf at padding, to be added to its scores: (B, S) -> (B, 1, 1, S)."""
    bias = torch.zeros(source.shape, dtype=dtype, device=source.device)
    return bias.masked_fill_(source == 0, -math.inf)[:, None, None]


def causal_bias(length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """-inf where position t would look at one after t (section 3.2.3): (T, T)."""
    return torch.full((length, length), -math.inf, dtype=dtype, device=device).triu_(1)


def dropout(x: Tensor, rate: float) -> Tensor:
    """Zero elements with probability `rate` and scale the others up (section 5.4).

    On a CPU torch spends 64 random bits and a division on each element, a fifth of a small model's training; 16 bits
    do. The rate is rounded to 1/65536 and the scale is the inverse of the rounded share, so the mean stays exact.
    """
    if x.is_cuda:
        return F.dropout(x, rate)
    threshold = min(round(rate * 65536), 65535)
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    keep = words.view(torch.int16)[: x.numel()].view(x.shape) >= threshold - 32768
    return x * keep.to(x.dtype).mul_(65536 / (65536 - threshold))


class Dropout(nn.Module):
    """`dropout` while training, nothing otherwise."""

    def __init__(self, rate: float):
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.rate) if self.training and self.rate else x


class Attention(nn.Module):
    """Multi-head scaled dot-product attention (section 3.2, equation 1): softmax(Q K^T / sqrt(K)) V per head."""

    def __init__(self, d_model: int, heads: int, dropout: float):
        super().__init__()
        if d_model % heads:
            raise ValueError(f"d_model={d_model} does not divide into heads={heads}; change one of them in params.yaml")
        self.heads, self.dropout = heads, dropout
        self.project = nn.Linear(d_model, 3 * d_model)  # rows: queries, keys, values
        self.output = nn.Linear(d_model, d_model)
        for rows in self.project.weight.chunk(3):
            nn.init.xavier_uniform_(rows)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.project.bias)
        nn.init.zeros_(self.output.bias)

    def forward(self, x: Tensor, memory: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        """Let x (B, T, D) attend to memory (B, S, D), or to itself. Returns (B, T, D).

        bias, of a shape that broadcasts to (B, H, T, S), is added to the scores: -inf forbids a look.
        """
        if memory is None:
            queries, keys, values = (split_heads(part, self.heads) for part in self.project(x).chunk(3, dim=-1))
        else:
            queries, (keys, values) = self.queries(x), self.keys_values(memory)
        return self.attend(queries, (keys, values), bias)

    def queries(self, x: Tensor) -> Tensor:
        """Queries of x: (B, T, D) -> (B, H, T, K)."""
        d_model = x.shape[-1]
        return split_heads(F.linear(x, self.project.weight[:d_model], self.project.bias[:d_model]), self.heads)

    def keys_values(self, memory: Tensor) -> KeysValues:
        """Keys and values of memory: (B, S, D) -> twice (B, H, S, K)."""
        d_model = memory.shape[-1]
        both = F.linear(memory, self.project.weight[d_model:], self.project.bias[d_model:])
        keys, values = both.chunk(2, dim=-1)
        return split_heads(keys, self.heads), split_heads(values, self.heads)

    def attend(self, queries: Tensor, keys_values: KeysValues, bias: Tensor | None) -> Tensor:
        """Queries (B, H, T, K) look at keys and values (B, H, S, K). Returns (B, T, D), projected."""
        keys, values = keys_values
        if self.training and self.dropout and not queries.is_cuda:
            # torch has no fused kernel for this case on CPUs, and draws its random numbers slowly
            scores = (queries * queries.shape[-1] ** -0.5) @ keys.transpose(-2, -1)  # (B, H, T, S)
            scores = scores if bias is None else scores + bias
            seen = dropout(scores.softmax(dim=-1), self.dropout) @ values
        else:
            seen = F.scaled_dot_product_attention(
                queries, keys, values, attn_mask=bias, dropout_p=self.dropout if self.training else 0.0
            )
        return self.output(merge_heads(seen))


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2 at every position (section 3.3, equation 2): (B, T, D) -> (B, T, D)."""

    def __init__(self, d_model: int, d_ff: int, dropout: float):
        super().__init__()
        self.inner, self.outer = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.dropout = Dropout(dropout)
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.dropout(F.relu(self.inner(x))))


class Residual(nn.Module):
    """The connection around a sub-layer (section 3.1): LayerNorm(x + f(x)) for post, x + f(LayerNorm(x)) for pre."""

    def __init__(self, d_model: int, dropout: float, norm: str):
        super().__init__()
        self.norm, self.dropout, self.pre = nn.LayerNorm(d_model), Dropout(dropout), norm == "pre"

    def forward(self, x: Tensor, sublayer) -> Tensor:
        if self.pre:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each in a residual connection: (B, S, D) -> (B, S, D)."""

    def __init__(self, d_model: int, d_ff: int, heads: int, dropout: float, norm: str):
        super().__init__()
        self.attention, self.feed_forward = Attention(d_model, heads, dropout), FeedForward(d_model, d_ff, dropout)
        self.residuals = nn.ModuleList(Residual(d_model, dropout, norm) for _ in range(2))

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        x = self.residuals[0](x, lambda x: self.attention(x, bias=bias))
        return self.residuals[1](x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the memory, feed-forward: (B, T, D) -> (B, T, D)."""

    def __init__(self, d_model: int, d_ff: int, heads: int, dropout: float, norm: str):
        super().__init__()
        self.attention, self.cross = Attention(d_model, heads, dropout), Attention(d_model, heads, dropout)
        self.feed_forward = FeedForward(d_model, d_ff, dropout)
        self.residuals = nn.ModuleList(Residual(d_model, dropout, norm) for _ in range(3))

    def forward(self, x: Tensor, bias: Tensor, memory: Tensor, memory_bias: Tensor) -> Tensor:
        x = self.residuals[0](x, lambda x: self.attention(x, bias=bias))
        x = self.residuals[1](x, lambda x: self.cross(x, memory, memory_bias))
        return self.residuals[2](x, self.feed_forward)

    def step(self, x: Tensor, past: KeysValues, memory: KeysValues, memory_bias: Tensor) -> tuple[Tensor, KeysValues]:
        """One more position of N beams: x (B, N, D), past (B*N, H, t, K), memory (B, H, S, K).

        The beams of a sentence stand side by side as N queries to the one memory they share, so nothing is repeated.
        Returns (B, N, D) and the past with this position added, (B*N, H, t + 1, K).
        """
        grown: list[Tensor] = []

        def attend_to_past(x: Tensor) -> Tensor:
            rows = x.flatten(0, 1)[:, None]  # (B, N, D) -> (B*N, 1, D)
            queries, *new = (
                split_heads(part, self.attention.heads) for part in self.attention.project(rows).chunk(3, -1)
            )
            grown.extend(torch.cat(pair, dim=2) for pair in zip(past, new, strict=True))
            return self.attention.attend(queries, (grown[0], grown[1]), None).view_as(x)

        x = self.residuals[0](x, attend_to_past)
        x = self.residuals[1](x, lambda x: self.cross.attend(self.cross.queries(x), memory, memory_bias))
        return self.residuals[2](x, self.feed_forward), (grown[0], grown[1])


class Transformer(nn.Module):
    """Encoder, decoder, embeddings and the projection to the vocabulary (figure 1).

    tie_embeddings shares one matrix (V, D) between source, target and projection (section 3.4). max_positions is the
    number of rows of a learned position table; positions beyond it share the last row. Sinusoids have no limit.
    """

    def __init__(self, *, vocabulary: int, d_model: int, d_ff: int, heads: int, layers: int, dropout: float, norm: str,
                 positions: str, tie_embeddings: bool, max_positions: int):  # fmt: skip
        super().__init__()
        self.d_model = d_model
        self.source_embedding = nn.Embedding(vocabulary, d_model)
        self.target_embedding = None if tie_embeddings else nn.Embedding(vocabulary, d_model)
        self.projection = None if tie_embeddings else nn.Linear(d_model, vocabulary, bias=False)
        self.position_embedding = nn.Embedding(max_positions, d_model) if positions == "learned" else None
        self.register_buffer("sinusoids", sinusoids(max_positions, d_model), persistent=False)
        shape = (d_model, d_ff, heads, dropout, norm)
        self.encoder = nn.ModuleList(EncoderLayer(*shape) for _ in range(layers))
        self.decoder = nn.ModuleList(DecoderLayer(*shape) for _ in range(layers))
        self.encoder_norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()
        self.decoder_norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()
        self.dropout = Dropout(dropout)
        for module in (self.source_embedding, self.target_embedding, self.projection, self.position_embedding):
            if module is not None:
                nn.init.normal_(module.weight, std=d_model**-0.5)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Decoder states (B, T, D) for source (B, S) and target (B, T), both padded with 0; target opens with <s>."""
        bias = self.source_bias(source)
        return self.decode(target, self.encode(source, bias), bias)

    def source_bias(self, source: Tensor) -> Tensor:
        """padding_bias in the precision of the weights: (B, S) -> (B, 1, 1, S)."""
        return padding_bias(source, self.source_embedding.weight.dtype)

    def encode(self, source: Tensor, bias: Tensor) -> Tensor:
        """Memory (B, S, D) of source ids (B, S)."""
        x = self.embed(self.source_embedding, source)
        for layer in self.encoder:
            x = layer(x, bias)
        return self.encoder_norm(x)

    def decode(self, target: Tensor, memory: Tensor, memory_bias: Tensor) -> Tensor:
        """States (B, T, D): state t has seen targets 0 to t, so padding at the end is seen by no position before it."""
        x = self.embed(self.output_embedding, target)
        bias = causal_bias(target.shape[1], memory_bias.dtype, target.device)
        for layer in self.decoder:
            x = layer(x, bias, memory, memory_bias)
        return self.decoder_norm(x)

    def open_caches(self, memory: Tensor, beams: int) -> tuple[list[KeysValues], list[KeysValues]]:
        """What `step` starts from, per decoder layer: an empty past and the keys and values of memory (B, S, D)."""
        layers = cast("list[DecoderLayer]", self.decoder)
        of_memory = [layer.cross.keys_values(memory) for layer in layers]
        sentences, heads, _, width = of_memory[0][0].shape
        nothing = memory.new_empty(sentences * beams, heads, 0, width)
        return [(nothing, nothing) for _ in layers], of_memory

    def step(
        self, ids: Tensor, place: int, past: list[KeysValues], memory: list[KeysValues], memory_bias: Tensor
    ) -> tuple[Tensor, list[KeysValues]]:
        """Scores (B, N, V) of what follows subwords ids (B, N), all at position `place`, and the past grown by them."""
        x = self.embed(self.output_embedding, ids, self.position_rows(place, 1))
        grown = []
        for layer, so_far, seen in zip(cast("list[DecoderLayer]", self.decoder), past, memory, strict=True):
            x, longer = layer.step(x, so_far, seen, memory_bias)
            grown.append(longer)
        return self.logits(self.decoder_norm(x)), grown

    @property
    def output_weight(self) -> Tensor:
        """The matrix (V, D) of the projection to the vocabulary."""
        return (self.projection or self.source_embedding).weight

    def logits(self, states: Tensor) -> Tensor:
        """Scores over the vocabulary: (..., D) -> (..., V)."""
        return F.linear(states, self.output_weight)

    @property
    def output_embedding(self) -> nn.Embedding:
        """The embedding of target subwords."""
        return self.target_embedding or self.source_embedding

    def embed(self, embedding: nn.Embedding, ids: Tensor, positions: Tensor | None = None) -> Tensor:
        """Embeddings times sqrt(D) (section 3.4) plus positions: ids (B, T) -> (B, T, D).

        positions: rows to add, of a shape that broadcasts to (T, D); by default those of positions 0 to T - 1.
        """
        rows = self.position_rows(0, ids.shape[1]) if positions is None else positions
        return self.dropout(embedding(ids) * math.sqrt(self.d_model) + rows)

    def position_rows(self, start: int, length: int) -> Tensor:
        """Encodings of positions start .. start + length - 1: (length, D)."""
        if self.position_embedding is not None:
            last = self.position_embedding.num_embeddings - 1
            numbers = torch.arange(start, start + length, device=self.position_embedding.weight.device)
            return self.position_embedding(numbers.clamp(max=last))
        weight = self.source_embedding.weight
        if start + length > self.sinusoids.shape[0]:
            self.sinusoids = sinusoids(2 * (start + length), self.d_model).to(weight.device)
        return self.sinusoids[start : start + length].to(weight.dtype)
