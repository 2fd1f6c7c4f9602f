"""A model folder to a folder for CTranslate2, a fast inference engine that does not need torch."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.transformer_spec import TransformerDecoderSpec, TransformerEncoderSpec
from torch import Tensor, nn

from transformer.files import whole_folder
from transformer.model.attention import Attention
from transformer.model.transformer import FeedForward, Transformer
from transformer.model.weights import load_model
from transformer.model_folder import POSITIONS, WEIGHTS, WORDS, write_sums
from transformer.text.vocabulary import Vocabulary


def export(model_folder: Path, target: Path, quantization: str) -> None:
    """Write the model of `model_folder` for CTranslate2 to `target`, a self-contained folder without weights for torch.

    quantization: see `add_export`.
    """
    with whole_folder(target) as folder:
        for name in ("bpe.codes", "model.json", "vocab.txt", WORDS):
            if name != WORDS or (model_folder / name).is_file():
                shutil.copyfile(model_folder / name, folder / name)
        add_export(model_folder, folder, quantization)


def add_export(model_folder: Path, target: Path, quantization: str) -> None:
    """Write CTranslate2's files of the model of `model_folder` into the folder `target`, which may be the same.

    All other files of `target` must be there: their sums are written too.

    quantization: float32, or int8 for the weights of matrix products (a quarter of the size).
    """
    vocabulary = Vocabulary.load(model_folder / "vocab.txt").subwords
    specification(load_model(model_folder).float(), vocabulary, quantization).save(str(target))
    write_sums(target, model_folder / WEIGHTS)


def specification(model: Transformer, vocabulary: list[str], quantization: str) -> Any:
    """A model and its subwords to CTranslate2's specification of them, which can be saved.

    CTranslate2 finds equal matrices itself, so it stores tied ones once.
    """
    spec = spec_with_weights(model)
    spec.register_source_vocabulary(vocabulary)
    spec.register_target_vocabulary(vocabulary)
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = nn.LayerNorm(1).eps
    spec.validate()
    spec.optimize(quantization=quantization)
    return spec


def spec_with_weights(model: Transformer) -> Any:
    """A model to CTranslate2's specification with its weights, under CTranslate2's names."""
    encoder, decoder = cast("list[Any]", list(model.encoder)), cast("list[Any]", list(model.decoder))
    pre, first = encoder[0].residuals[0].pre, encoder[0].attention
    width = head_width(first) if len(set(first.widths)) > 1 else None  # None: d_model / heads
    spec: Any = TransformerSpec(
        TransformerEncoderSpec(len(encoder), first.heads, pre_norm=pre, head_dim=width),
        TransformerDecoderSpec(len(decoder), first.heads, pre_norm=pre, head_dim=width),
    )
    for layer_spec, layer in zip(spec.encoder.layer, encoder, strict=True):
        norms = [residual.norm for residual in layer.residuals]
        set_attention(layer_spec.self_attention, layer.attention, norms[0])
        set_feed_forward(layer_spec.ffn, layer.feed_forward, norms[1])
    for layer_spec, layer in zip(spec.decoder.layer, decoder, strict=True):
        norms = [residual.norm for residual in layer.residuals]
        set_attention(layer_spec.self_attention, layer.attention, norms[0])
        set_attention(layer_spec.attention, layer.cross, norms[1], of_memory=True)
        set_feed_forward(layer_spec.ffn, layer.feed_forward, norms[2])
    if pre:
        set_norm(spec.encoder.layer_norm, model.encoder_norm)
        set_norm(spec.decoder.layer_norm, model.decoder_norm)
    # CTranslate2's own sinusoids start at position 1 and have other frequencies
    spec.encoder.position_encodings.encodings = array(model.position_encodings(0, POSITIONS))
    spec.decoder.position_encodings.encodings = array(model.position_encodings(0, POSITIONS))
    spec.encoder.embeddings[0].weight = array(model.source_embedding.weight)
    spec.decoder.embeddings.weight = array(model.output_embedding.weight)
    spec.decoder.projection.weight = array(model.output_weight)
    return spec


def array(tensor: Tensor) -> np.ndarray:
    """A tensor to a float32 array, a copy."""
    return tensor.detach().float().numpy().copy()


def set_linear(spec: Any, weight: Tensor, bias: Tensor) -> None:
    """Set weight W and bias b of the linear layer x W^T + b."""
    spec.weight, spec.bias = array(weight), array(bias)


def set_norm(spec: Any, norm: nn.Module) -> None:
    """Set gain and bias of layer normalisation."""
    spec.gamma, spec.beta = array(cast("Tensor", norm.weight)), array(cast("Tensor", norm.bias))


def set_attention(spec: Any, attention: Attention, norm: nn.Module, of_memory: bool = False) -> None:
    """Set the projections of attention and the normalisation around it.

    Self-attention computes queries, keys and values in one product. Attention to the memory (of_memory) computes the
    queries in one, keys and values in another. CTranslate2 has one width for all three. The narrower ones get rows of
    zeros, which change no product of a query and a key; zeros in values meet columns of zeros in the output matrix.
    """
    heads, width = attention.heads, head_width(attention)
    weights = [wider(rows, heads, width) for rows in attention.project.weight.split(attention.widths)]
    biases = [wider(rows, heads, width) for rows in attention.project.bias.split(attention.widths)]
    ends = (0, 1, 3) if of_memory else (0, 3)
    for linear, (first, end) in zip(spec.linear, pairwise(ends), strict=False):
        set_linear(linear, torch.cat(weights[first:end]), torch.cat(biases[first:end]))
    set_linear(spec.linear[-1], wider(attention.output.weight.T, heads, width).T, attention.output.bias)
    if attention.widths[0] < heads * width:  # CTranslate2 would scale by the width with the zeros
        spec.queries_scale = np.float32((attention.widths[0] // heads) ** -0.5)
    set_norm(spec.layer_norm, norm)


def head_width(attention: Attention) -> int:
    """The width of a head for CTranslate2: that of its queries and keys, or of its values if that is larger."""
    return max(attention.widths) // attention.heads


def wider(rows: Tensor, heads: int, width: int) -> Tensor:
    """The rows of H heads (H * fewer, ...) with rows of zeros after those of each head: (H * width, ...)."""
    cut = rows.unflatten(0, (heads, -1))  # (H, fewer, ...)
    return torch.cat((cut, cut.new_zeros(heads, width - cut.shape[1], *cut.shape[2:])), 1).flatten(0, 1)


def set_feed_forward(spec: Any, layer: FeedForward, norm: nn.Module) -> None:
    """Set the two linear layers of feed-forward (equation 2) and the normalisation around it."""
    set_linear(spec.linear_0, layer.inner.weight, layer.inner.bias)
    set_linear(spec.linear_1, layer.outer.weight, layer.outer.bias)
    set_norm(spec.layer_norm, norm)
