"""A model folder to a folder for CTranslate2, a fast inference engine that does not need torch."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, cast

import numpy as np
from ctranslate2.specs import TransformerSpec
from torch import Tensor, nn

from transformer.files import whole_folder, write_json
from transformer.model.attention import Attention
from transformer.model.transformer import FeedForward, Transformer
from transformer.model.weights import load_model
from transformer.model_folder import read_model_json
from transformer.text.vocabulary import Vocabulary

POSITIONS = 4096  # rows of the stored position table: limits the length of a source and of a translation


def export(model_folder: Path, target: Path, quantization: str) -> None:
    """Write the model of `model_folder` for CTranslate2 to `target`, a self-contained folder.

    `target` gets CTranslate2's files, merges, vocabulary and model.json. quantization: float32, or int8 for the weights
    of matrix products (a quarter of the size).
    """
    contents = read_model_json(model_folder / "model.json")
    vocabulary = Vocabulary.load(model_folder / "vocab.txt").subwords
    spec = specification(load_model(model_folder).float(), vocabulary, quantization)
    with whole_folder(target) as folder:
        spec.save(str(folder))
        for name in ("bpe.codes", "vocab.txt"):
            shutil.copyfile(model_folder / name, folder / name)
        contents["ctranslate2"] = {"quantization": quantization, "positions": POSITIONS}
        write_json(folder / "model.json", contents)


def specification(model: Transformer, vocabulary: list[str], quantization: str) -> Any:
    """A model and its subwords to CTranslate2's specification of them, which can be saved.

    CTranslate2 finds equal matrices itself, so it stores tied ones once.
    """
    spec = named_weights(model)
    spec.register_source_vocabulary(vocabulary)
    spec.register_target_vocabulary(vocabulary)
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = nn.LayerNorm(1).eps
    spec.validate()
    spec.optimize(quantization=quantization)
    return spec


def named_weights(model: Transformer) -> Any:
    """A model to CTranslate2's specification with its weights, under CTranslate2's names."""
    encoder, decoder = cast("list[Any]", list(model.encoder)), cast("list[Any]", list(model.decoder))
    pre = encoder[0].residuals[0].pre
    spec: Any = TransformerSpec.from_config(len(encoder), encoder[0].attention.heads, pre_norm=pre)
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
    queries in one, keys and values in another.
    """
    weight, bias = attention.project.weight, attention.project.bias
    parts = (slice(0, weight.shape[1]), slice(weight.shape[1], None)) if of_memory else (slice(None),)
    for linear, rows in zip(spec.linear, parts, strict=False):
        set_linear(linear, weight[rows], bias[rows])
    set_linear(spec.linear[-1], attention.output.weight, attention.output.bias)
    set_norm(spec.layer_norm, norm)


def set_feed_forward(spec: Any, layer: FeedForward, norm: nn.Module) -> None:
    """Set the two linear layers of feed-forward (equation 2) and the normalisation around it."""
    set_linear(spec.linear_0, layer.inner.weight, layer.inner.bias)
    set_linear(spec.linear_1, layer.outer.weight, layer.outer.bias)
    set_norm(spec.layer_norm, norm)
