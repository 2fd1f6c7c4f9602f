"""The encoder-decoder Transformer of "Attention Is All You Need" (Vaswani et al. 2017), from its parts to the whole.

Sections, equations and figures are those of the paper. The whole package writes shapes with one letter per dimension:
    B sentences of a batch · S source subwords · T target subwords · D d_model · F d_ff · V vocabulary
    H heads · K width of a head's queries and keys, D / H unless key_size is set; its values have the width D / H
    N beams per sentence · t target subwords decoded so far
    W V rounded up to a multiple of 64, in decoding alone: the ids from V on have probability 0
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer.files import Mistake
from transformer.model.attention import Attention, KeysValues, KeyValueCache, causal_bias, padding_bias
from transformer.model.config import TransformerConfig
from transformer.model.cpu import Linear, add_dropout, dropout, product, relu_dropout

ROWS = 4096  # of the table of sinusoids of a new model, at most; position_encodings enlarges it


def sinusoids(length: int, d_model: int) -> Tensor:
    """Position encodings of positions 0 to length - 1 (section 3.5): (length, D), float64.

    PE(pos, 2i) = sin(pos / 10000^(2i / D)), PE(pos, 2i + 1) = cos(pos / 10000^(2i / D)).
    """
    angles = torch.arange(length, dtype=torch.float64)[:, None] * torch.exp(
        torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10000.0) / d_model)
    )  # (length, D/2)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)  # (length, D/2, 2) -> (length, D)


class LayerNorm(nn.LayerNorm):
    """Layer normalisation: (..., D) -> (..., D) in the precision of x, with mean and variance in at least float32."""

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.bias.to(x.dtype), self.eps)


class DropoutRates(NamedTuple):
    """Probabilities of dropout in a layer."""

    residual: float  # on the output of each sub-layer (section 5.4)
    attention: float  # on attention weights
    activation: float  # on the inner activations of the feed-forward sub-layer


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W1 + b1) W2 + b2 at each position (section 3.3, equation 2): (B, T, D) -> (B, T, D)."""

    def __init__(self, d_model: int, d_ff: int, dropout: float):
        super().__init__()
        self.inner, self.outer = Linear(d_model, d_ff), Linear(d_ff, d_model)
        self.dropout = dropout
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        hidden = relu_dropout(self.inner(x), self.dropout, self.training)  # dropout(max(0, x W1 + b1)): (B, T, F)
        return self.outer(hidden)


class Residual(nn.Module):
    """The residual connection and normalisation around a sub-layer f (section 3.1): (B, T, D) -> (B, T, D).

    norm post, the paper's: LayerNorm(x + dropout(f(x))). norm pre: x + dropout(f(LayerNorm(x))).
    """

    def __init__(self, d_model: int, dropout: float, norm: str):
        super().__init__()
        self.norm, self.dropout, self.pre = LayerNorm(d_model), dropout, norm == "pre"

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre:
            return add_dropout(x, sublayer(self.norm(x)), self.dropout, self.training)
        return self.norm(add_dropout(x, sublayer(x), self.dropout, self.training))


class EncoderLayer(nn.Module):
    """One layer of the encoder (figure 1, left): self-attention and feed-forward, each in a residual connection."""

    def __init__(self, d_model: int, d_ff: int, heads: int, key_size: int, rates: DropoutRates, norm: str):
        super().__init__()
        self.attention = Attention(d_model, heads, rates.attention, key_size)
        self.feed_forward = FeedForward(d_model, d_ff, rates.activation)
        self.residuals = nn.ModuleList(Residual(d_model, rates.residual, norm) for _ in range(2))

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        """Source states to source states: (B, S, D) -> (B, S, D). bias (B, 1, 1, S): see padding_bias."""
        x = self.residuals[0](x, lambda x: self.attention(x, bias=bias))
        return self.residuals[1](x, self.feed_forward)


class DecoderLayer(nn.Module):
    """One layer of the decoder (figure 1, right): masked self-attention, attention to the memory, feed-forward."""

    def __init__(self, d_model: int, d_ff: int, heads: int, key_size: int, rates: DropoutRates, norm: str):
        super().__init__()
        self.attention, self.cross = (Attention(d_model, heads, rates.attention, key_size) for _ in range(2))
        self.feed_forward = FeedForward(d_model, d_ff, rates.activation)
        self.residuals = nn.ModuleList(Residual(d_model, rates.residual, norm) for _ in range(3))

    def forward(self, x: Tensor, bias: Tensor, memory: Tensor, memory_bias: Tensor) -> Tensor:
        """Target states to target states, with memory (B, S, D): (B, T, D) -> (B, T, D). bias: see causal_bias."""
        x = self.residuals[0](x, lambda x: self.attention(x, bias=bias))
        x = self.residuals[1](x, lambda x: self.cross(x, memory, memory_bias))
        return self.residuals[2](x, self.feed_forward)

    def step(
        self, x: Tensor, cache: KeyValueCache, ancestry: Tensor, memory: KeysValues, memory_bias: Tensor
    ) -> Tensor:
        """Compute the next position of the N beams of each sentence: (B, N, D) -> (B, N, D).

        cache: keys and values of the positions before; those of this position are appended, so it then holds t
        positions. ancestry (B, 1, N, t*N): 0 where a beam attends to a cached position, -inf elsewhere.
        memory: its keys and values (see Attention.keys_values). memory_bias (B, 1, 1, S): see padding_bias.
        """

        def attend_to_cache(x: Tensor) -> Tensor:
            queries, (keys, values) = self.attention.queries_keys_values(x)
            return self.attention.attend(queries, cache.append(keys, values), ancestry)

        x = self.residuals[0](x, attend_to_cache)
        x = self.residuals[1](x, lambda x: self.cross.attend(self.cross.queries(x), memory, memory_bias))
        return self.residuals[2](x, self.feed_forward)


class Transformer(nn.Module):
    """Encoder, decoder, embeddings and the projection to the vocabulary (figure 1)."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        d_model, vocabulary, tied = config.d_model, config.vocabulary, config.tie_embeddings
        self.config, self.d_model = config, d_model
        self.compute: torch.dtype | None = None  # precision of the computation; None: that of the weights
        self.source_embedding = nn.Embedding(vocabulary, d_model)
        self.target_embedding = None if tied else nn.Embedding(vocabulary, d_model)
        self.projection = None if tied else nn.Linear(d_model, vocabulary, bias=False)
        learned, pre = config.positions == "learned", config.norm == "pre"
        self.position_embedding = nn.Embedding(config.max_positions, d_model) if learned else None
        self.register_buffer("sinusoids", sinusoids(min(config.max_positions, ROWS), d_model), persistent=False)
        rates = DropoutRates(config.dropout, config.attention_dropout, config.activation_dropout)
        complete = config.complete
        sizes = (d_model, config.d_ff, config.heads, complete.key_size, rates, config.norm)
        self.encoder = nn.ModuleList(EncoderLayer(*sizes) for _ in range(complete.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(*sizes) for _ in range(complete.decoder_layers))
        self.encoder_norm = LayerNorm(d_model) if pre else nn.Identity()
        self.decoder_norm = LayerNorm(d_model) if pre else nn.Identity()
        self.dropout = config.dropout
        for module in (self.source_embedding, self.target_embedding, self.projection):
            if module is not None:
                nn.init.normal_(module.weight, std=d_model**-0.5)
        if self.position_embedding is not None:  # starts as the sinusoids
            self.position_embedding.weight.data.copy_(sinusoids(config.max_positions, d_model))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Source ids (B, S) and target ids (B, T), padded with 0, to states (B, T, D). Targets start with <s>."""
        bias = self.source_bias(source)
        return self.decode(target, self.encode(source, bias), bias)

    def source_bias(self, source: Tensor) -> Tensor:
        """The padding_bias of source ids in the precision of the computation: (B, S) -> (B, 1, 1, S).

        Raises Mistake for a source that is all padding: nothing could attend to it. A training on a GPU, which would
        wait for the check, and compiled code do without it.
        """
        unchecked = (self.training and source.is_cuda) or torch.compiler.is_compiling()
        if not unchecked and bool((empty := (source == 0).all(1)).any()):
            row = int(empty.nonzero()[0])
            raise Mistake(f"Source {row} is all padding (id 0). Leave it out, or give it </s> (id 3).")
        return padding_bias(source, self.compute or self.source_embedding.weight.dtype)

    def encode(self, source: Tensor, bias: Tensor) -> Tensor:
        """Source ids to the memory, the output of the encoder: (B, S) -> (B, S, D). bias: see source_bias."""
        x = self.embed(self.source_embedding, source)
        for layer in self.encoder:
            x = layer(x, bias)
        return self.encoder_norm(x)

    def decode(self, target: Tensor, memory: Tensor, memory_bias: Tensor) -> Tensor:
        """Target ids to decoder states, with memory (B, S, D) and its source_bias: (B, T) -> (B, T, D)."""
        x = self.embed(self.output_embedding, target)
        # position i attends to positions 0 to i, so padding at the end of a target changes no state before it
        bias = causal_bias(target.shape[1], memory_bias.dtype, target.device)
        for layer in self.decoder:
            x = layer(x, bias, memory, memory_bias)
        return self.decoder_norm(x)

    def memory_keys_values(self, memory: Tensor) -> list[KeysValues]:
        """Memory (B, S, D) to its keys (B, H, S, K) and values (B, H, S, D/H) in each decoder layer."""
        return [layer.cross.keys_values(memory) for layer in cast("list[DecoderLayer]", self.decoder)]

    def step(
        self,
        ids: Tensor,
        position: int,
        caches: list[KeyValueCache],
        ancestry: Tensor,
        memory: list[KeysValues],
        memory_bias: Tensor,
    ) -> Tensor:
        """The newest subword of each beam to its decoder state: (B, N) -> (B, N, D). See DecoderLayer.step."""
        x = self.embed(self.output_embedding, ids, self.position_encodings(position, 1))
        for layer, cache, keys_values in zip(cast("list[DecoderLayer]", self.decoder), caches, memory, strict=True):
            x = layer.step(x, cache, ancestry, keys_values, memory_bias)
        return self.decoder_norm(x)

    @property
    def output_weight(self) -> Tensor:
        """The matrix of the projection to the vocabulary: (V, D)."""
        return (self.projection or self.source_embedding).weight

    def predict(self, source: Tensor, target: Tensor) -> Tensor:
        """Source ids (B, S) and target ids (B, T) to the logits of the subword after each position (B, T, V).

        A cross-entropy over all of them is a loss. Targets start with <s>; both are padded with 0.
        """
        return self.logits(self(source, target))

    def logits(self, states: Tensor) -> Tensor:
        """Decoder states to unnormalised log-probabilities of the next subword: (..., D) -> (..., V)."""
        return product(states, self.output_weight)

    @property
    def output_embedding(self) -> nn.Embedding:
        """The embedding of target subwords."""
        return self.target_embedding or self.source_embedding

    def embed(self, embedding: nn.Embedding, ids: Tensor, encodings: Tensor | None = None) -> Tensor:
        """Ids to embeddings times sqrt(D) (section 3.4) plus encodings, by default from position 0: (B, T, D)."""
        encodings = self.position_encodings(0, ids.shape[1]) if encodings is None else encodings
        x = embedding(ids) * math.sqrt(self.d_model) + encodings
        x = x if self.compute is None else x.to(self.compute)
        return dropout(x, self.dropout, self.training)

    def position_encodings(self, start: int, length: int) -> Tensor:
        """Encodings of the positions from `start` to start + length - 1: (length, D)."""
        if self.position_embedding is not None:
            last = self.position_embedding.num_embeddings - 1
            numbers = torch.arange(start, start + length, device=self.position_embedding.weight.device)
            return self.position_embedding(numbers.clamp(max=last))
        weight = self.source_embedding.weight
        if start + length > self.sinusoids.shape[0]:
            self.sinusoids = sinusoids(2 * (start + length), self.d_model).to(weight.device)
        return self.sinusoids[start : start + length].to(weight.dtype)
