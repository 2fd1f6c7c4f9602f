"""Sizes and settings of a Transformer."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class TransformerConfig:
    """Sizes and settings of a Transformer. The fields have the names of params.yaml; model.json stores them.

    vocabulary: V. max_positions: rows of a learned position table; later positions use its last row. Sinusoids have no
    limit. norm: pre or post (section 3.1). positions: sinusoidal or learned (section 3.5). tie_embeddings: one matrix
    (V, D) for source, target and projection (section 3.4). dropout: probability on embeddings and on the output of each
    sub-layer (section 5.4). attention_dropout: on attention weights. activation_dropout: inside feed-forward.
    key_size: width of the queries and keys of a head, d_k of section 3.2.1; 0: d_model / heads, which is always the
    width of its values. encoder_layers, decoder_layers: 0: layers.
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
    key_size: int = 0
    encoder_layers: int = 0
    decoder_layers: int = 0

    @property
    def complete(self) -> TransformerConfig:
        """The same model, with its numbers in the place of those that are 0."""
        return replace(
            self,
            key_size=self.key_size or self.d_model // self.heads,
            encoder_layers=self.encoder_layers or self.layers,
            decoder_layers=self.decoder_layers or self.layers,
        )
