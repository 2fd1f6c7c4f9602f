"""The encoder-decoder Transformer of "Attention Is All You Need" (Vaswani et al. 2017), bottom up.

Shapes, one letter per dimension in the whole package:
    B sentences · S source subwords · T target subwords · D d_model · F d_ff · H heads · K = D / H · V vocabulary
    N beams of one sentence
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer.model.attention import Attention, KeysValues, KeyValueCache, causal_bias, padding_bias
from transformer.model.dropout import add_dropout, dropout, dropped_relu
from transformer.model.linear import Linear, product


def sinusoids(length: int, d_model: int) -> Tensor:
    """Position encodings (section 3.5): sin and cos of pos / 10000^(2i / D) in turn. Returns (length, D), float64."""
    angles = torch.arange(length, dtype=torch.float64)[:, None] * torch.exp(
        torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10000.0) / d_model)
    )
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)  # (length, D/2, 2) -> (length, D)


class LayerNorm(nn.LayerNorm):
    """Layer normalisation in the precision of x, with statistics in at least float32."""

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.bias.to(x.dtype), self.eps)


class DropoutRates(NamedTuple):
    """Probabilities of dropout: of what a sub-layer gives (section 5.4), of attention weights, inside feed-forward."""

    residual: float
    attention: float
    activation: float


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2 at every position (section 3.3, equation 2): (B, T, D) -> (B, T, D)."""

    def __init__(self, d_model: int, d_ff: int, dropout: float):
        super().__init__()
        self.inner, self.outer = Linear(d_model, d_ff), Linear(d_ff, d_model)
        self.dropout = dropout
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(dropped_relu(self.inner(x), self.dropout if self.training else 0.0))


class Residual(nn.Module):
    """The connection around a sub-layer (section 3.1): LayerNorm(x + f(x)) for post, x + f(LayerNorm(x)) for pre."""

    def __init__(self, d_model: int, dropout: float, norm: str):
        super().__init__()
        self.norm, self.dropout, self.pre = LayerNorm(d_model), dropout, norm == "pre"

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        rate = self.dropout if self.training else 0.0
        if self.pre:
            return add_dropout(x, sublayer(self.norm(x)), rate)
        return self.norm(add_dropout(x, sublayer(x), rate))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each in a residual connection: (B, S, D) -> (B, S, D)."""

    def __init__(self, d_model: int, d_ff: int, heads: int, rates: DropoutRates, norm: str):
        super().__init__()
        self.attention = Attention(d_model, heads, rates.attention)
        self.feed_forward = FeedForward(d_model, d_ff, rates.activation)
        self.residuals = nn.ModuleList(Residual(d_model, rates.residual, norm) for _ in range(2))

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        x = self.residuals[0](x, lambda x: self.attention(x, bias=bias))
        return self.residuals[1](x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the memory, feed-forward: (B, T, D) -> (B, T, D)."""

    def __init__(self, d_model: int, d_ff: int, heads: int, rates: DropoutRates, norm: str):
        super().__init__()
        self.attention, self.cross = (Attention(d_model, heads, rates.attention) for _ in range(2))
        self.feed_forward = FeedForward(d_model, d_ff, rates.activation)
        self.residuals = nn.ModuleList(Residual(d_model, rates.residual, norm) for _ in range(3))

    def forward(self, x: Tensor, bias: Tensor, memory: Tensor, memory_bias: Tensor) -> Tensor:
        x = self.residuals[0](x, lambda x: self.attention(x, bias=bias))
        x = self.residuals[1](x, lambda x: self.cross(x, memory, memory_bias))
        return self.residuals[2](x, self.feed_forward)

    def step(
        self, x: Tensor, cache: KeyValueCache, ancestry: Tensor, memory: KeysValues, memory_bias: Tensor
    ) -> Tensor:
        """One more position of the N beams of each sentence: (B, N, D) -> (B, N, D). Appends it to `cache`.

        ancestry (B, 1, N, t*N) tells which of the cached positions, this one included, each beam may look at.
        """

        def attend_to_cache(x: Tensor) -> Tensor:
            queries, keys, values = self.attention.queries_keys_values(x)
            return self.attention.attend(queries, cache.append(keys, values), ancestry)

        x = self.residuals[0](x, attend_to_cache)
        x = self.residuals[1](x, lambda x: self.cross.attend(self.cross.queries(x), memory, memory_bias))
        return self.residuals[2](x, self.feed_forward)


@dataclass(frozen=True)
class TransformerConfig:
    """Sizes and settings of a Transformer, under the names of the knobs; model.json keeps them.

    vocabulary: V. max_positions: rows of a learned position table; positions beyond it share the last row. Sinusoids
    have no limit. norm: pre or post (section 3.1). positions: sinusoidal or learned (section 3.5). tie_embeddings: one
    matrix (V, D) for source, target and projection (section 3.4). dropout: probability on embeddings and on what each
    sub-layer gives (section 5.4), attention_dropout: on attention weights, activation_dropout: inside feed-forward.
    """

    vocabulary: int
    max_positions: int
    d_model: int
    d_ff: int
    heads: int
    layers: int
    dropout: float
    norm: str
    positions: str
    tie_embeddings: bool
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0


class Transformer(nn.Module):
    """Encoder, decoder, embeddings and the projection to the vocabulary (figure 1)."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        d_model, vocabulary, tied = config.d_model, config.vocabulary, config.tie_embeddings
        self.config, self.d_model = config, d_model
        self.compute: torch.dtype | None = None  # precision to compute in; None: that of the weights
        self.source_embedding = nn.Embedding(vocabulary, d_model)
        self.target_embedding = None if tied else nn.Embedding(vocabulary, d_model)
        self.projection = None if tied else nn.Linear(d_model, vocabulary, bias=False)
        learned, pre = config.positions == "learned", config.norm == "pre"
        self.position_embedding = nn.Embedding(config.max_positions, d_model) if learned else None
        self.register_buffer("sinusoids", sinusoids(config.max_positions, d_model), persistent=False)
        rates = DropoutRates(config.dropout, config.attention_dropout, config.activation_dropout)
        layer = (d_model, config.d_ff, config.heads, rates, config.norm)
        self.encoder = nn.ModuleList(EncoderLayer(*layer) for _ in range(config.layers))
        self.decoder = nn.ModuleList(DecoderLayer(*layer) for _ in range(config.layers))
        self.encoder_norm = LayerNorm(d_model) if pre else nn.Identity()
        self.decoder_norm = LayerNorm(d_model) if pre else nn.Identity()
        self.dropout = config.dropout
        for module in (self.source_embedding, self.target_embedding, self.projection, self.position_embedding):
            if module is not None:
                nn.init.normal_(module.weight, std=d_model**-0.5)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Decoder states (B, T, D) for source (B, S) and target (B, T), both padded with 0; target opens with <s>."""
        bias = self.source_bias(source)
        return self.decode(target, self.encode(source, bias), bias)

    def source_bias(self, source: Tensor) -> Tensor:
        """padding_bias in the precision of the computation: (B, S) -> (B, 1, 1, S)."""
        return padding_bias(source, self.compute or self.source_embedding.weight.dtype)

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

    def memory_keys_values(self, memory: Tensor) -> list[KeysValues]:
        """Per decoder layer, the keys and values of memory (B, S, D): twice (B, H, S, K)."""
        return [layer.cross.keys_values(memory) for layer in cast("list[DecoderLayer]", self.decoder)]

    def step(self, ids: Tensor, place: int, caches: list[KeyValueCache], ancestry: Tensor, memory: list[KeysValues],
             memory_bias: Tensor) -> Tensor:  # fmt: skip
        """States (B, N, D) of subwords ids (B, N), all at position `place`; see DecoderLayer.step."""
        x = self.embed(self.output_embedding, ids, self.position_rows(place, 1))
        for layer, cache, seen in zip(cast("list[DecoderLayer]", self.decoder), caches, memory, strict=True):
            x = layer.step(x, cache, ancestry, seen, memory_bias)
        return self.decoder_norm(x)

    @property
    def output_weight(self) -> Tensor:
        """The matrix (V, D) of the projection to the vocabulary."""
        return (self.projection or self.source_embedding).weight

    def logits(self, states: Tensor) -> Tensor:
        """Scores over the vocabulary: (..., D) -> (..., V)."""
        return product(states, self.output_weight)

    @property
    def output_embedding(self) -> nn.Embedding:
        """The embedding of target subwords."""
        return self.target_embedding or self.source_embedding

    def embed(self, embedding: nn.Embedding, ids: Tensor, positions: Tensor | None = None) -> Tensor:
        """Embeddings times sqrt(D) (section 3.4) plus positions: ids (B, T) -> (B, T, D).

        positions: rows to add, of a shape that broadcasts to (T, D); by default those of positions 0 to T - 1.
        """
        rows = self.position_rows(0, ids.shape[1]) if positions is None else positions
        x = embedding(ids) * math.sqrt(self.d_model) + rows
        x = x if self.compute is None else x.to(self.compute)
        return dropout(x, self.dropout if self.training else 0.0)

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
