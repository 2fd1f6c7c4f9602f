"""Where the model looks while it reads a sentence pair."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from transformer.model.attention import Attention
from transformer.model.transformer import DecoderLayer, EncoderLayer, Transformer
from transformer.text.vocabulary import BOS, EOS


@dataclass(frozen=True)
class AttentionMaps:
    """Attention weights of one sentence pair, per layer and head; rows sum to 1. S and T count </s> and <s>."""

    encoder: Tensor  # (layers, H, S, S) source looks at source
    decoder: Tensor  # (layers, H, T, T) target looks at target
    cross: Tensor  # (layers, H, T, S) row t: where the model looks in the source to write target subword t


@torch.no_grad()
def attention_maps(model: Transformer, source: Sequence[int], target: Sequence[int]) -> AttentionMaps:
    """Where the model looks while it reads source and target (ids without </s>)."""
    encoder = cast("list[EncoderLayer]", list(model.encoder))
    decoder = cast("list[DecoderLayer]", list(model.decoder))
    kinds = [[layer.attention for layer in encoder], [layer.attention for layer in decoder],
             [layer.cross for layer in decoder]]  # fmt: skip
    device = next(model.parameters()).device
    with recorded([attention for kind in kinds for attention in kind]) as weights:
        model(torch.tensor([[*source, EOS]], device=device), torch.tensor([[BOS, *target]], device=device))
    return AttentionMaps(*(torch.stack([weights[attention] for attention in kind]) for kind in kinds))


@contextmanager
def recorded(attentions: Sequence[Attention]) -> Iterator[dict[Attention, Tensor]]:
    """Collects the weights (H, T, S) of attentions over the first sentence of what they are called with."""
    weights: dict[Attention, Tensor] = {}

    def look(attention: Attention, arguments: tuple, named: dict) -> None:
        x = arguments[0]
        memory = named.get("memory", arguments[1] if len(arguments) > 1 else None)
        bias = named.get("bias", arguments[2] if len(arguments) > 2 else None)
        keys = attention.keys_values(x if memory is None else memory)[0]
        weights[attention] = attention.weights(attention.queries(x), keys, bias)[0].cpu()

    handles = [attention.register_forward_pre_hook(look, with_kwargs=True) for attention in attentions]
    try:
        yield weights
    finally:
        for handle in handles:
            handle.remove()
