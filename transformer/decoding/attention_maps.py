"""A sentence pair to the attention weights of every layer and head."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from transformer.decoding.cached_decoder import without_dropout
from transformer.model.attention import Attention
from transformer.model.transformer import DecoderLayer, EncoderLayer, Transformer
from transformer.text.vocabulary import BOS, EOS


@dataclass(frozen=True)
class AttentionMaps:
    """Attention weights of one sentence pair. Each row sums to 1.

    S: the source subwords and </s>. T: the target subwords and one more, since the decoder reads <s> and the target and
    predicts the target and </s>. Row i of the decoder is of the state that predicts target subword i, counted from 0;
    the last row is of the state that predicts </s>.
    """

    encoder: Tensor  # (layers, H, S, S) source to source
    decoder: Tensor  # (layers, H, T, T) target to target
    cross: Tensor  # (layers, H, T, S) target to source


@torch.no_grad()
def attention_maps(model: Transformer, source: Sequence[int], target: Sequence[int]) -> AttentionMaps:
    """The attention weights of a model on source and target ids, both without <s> and </s>."""
    encoder = cast("list[EncoderLayer]", list(model.encoder))
    decoder = cast("list[DecoderLayer]", list(model.decoder))
    kinds = [
        [layer.attention for layer in encoder],
        [layer.attention for layer in decoder],
        [layer.cross for layer in decoder],
    ]
    device = next(model.parameters()).device
    attentions = [attention for kind in kinds for attention in kind]
    with without_dropout([model]), record_weights(attentions) as weights:
        model(torch.tensor([[*source, EOS]], device=device), torch.tensor([[BOS, *target]], device=device))
    return AttentionMaps(*(torch.stack([weights[attention] for attention in kind]) for kind in kinds))


@contextmanager
def record_weights(attentions: Sequence[Attention]) -> Iterator[dict[Attention, Tensor]]:
    """Yield a dictionary that each attention fills when it is called: attention -> weights (H, T, S) on the CPU.

    The weights are those of the first sentence of the batch.
    """
    weights: dict[Attention, Tensor] = {}

    def record(attention: Attention, arguments: tuple, named: dict) -> None:
        x = arguments[0]
        memory = named.get("memory", arguments[1] if len(arguments) > 1 else None)
        bias = named.get("bias", arguments[2] if len(arguments) > 2 else None)
        keys = attention.keys_values(x if memory is None else memory)[0]
        weights[attention] = attention.weights(attention.queries(x), keys, bias)[0].cpu()

    handles = [attention.register_forward_pre_hook(record, with_kwargs=True) for attention in attentions]
    try:
        yield weights
    finally:
        for handle in handles:
            handle.remove()
