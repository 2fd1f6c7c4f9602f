"""A model to a folder that MarianMTModel.from_pretrained of Hugging Face's transformers reads, with the same logits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from transformer.files import check_replaceable, whole_folder, write_json
from transformer.model.attention import Attention
from transformer.model.transformer import FeedForward, Transformer
from transformer.model.weights import cpu_copy, save_weights
from transformer.text.vocabulary import BOS, EOS, PAD

POSITIONS = 1024  # rows of Marian's position table: limits the length of a source and of a translation
NEEDED = {"norm": "post", "positions": "sinusoidal", "tie_embeddings": True}


def export_marian(model: Transformer, folder: Path | str) -> None:
    """Write config.json and model.safetensors; a folder that is there is replaced. The ids stay those of vocab.txt.

    Marian puts all sines of a position before all cosines, where the paper has them in turn (section 3.5). So the
    dimensions of all states are written in that order. Raises ValueError for a model that Marian cannot compute,
    and for a folder with other files.
    """
    check_replaceable(Path(folder), ("config.json", "model.safetensors"))
    sizes = model.config.complete
    for name, value in (NEEDED | {"key_size": sizes.d_model // sizes.heads}).items():
        if getattr(sizes, name) != value:
            raise ValueError(
                f"{name}={getattr(sizes, name)!r} does not exist in Marian. Nothing was exported. Train a model with "
                f"{name}={value!r}."
            )
    config = {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "vocab_size": sizes.vocabulary,
        "d_model": sizes.d_model,
        "max_position_embeddings": POSITIONS,
        "activation_function": "relu",
        "scale_embedding": True,
        "dropout": sizes.dropout,
        "attention_dropout": sizes.attention_dropout,
        "activation_dropout": sizes.activation_dropout,
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "decoder_start_token_id": BOS,
        "eos_token_id": EOS,
        "forced_eos_token_id": None,
    }
    for part in ("encoder", "decoder"):
        config[f"{part}_layers"] = getattr(sizes, f"{part}_layers")
        config |= {f"{part}_attention_heads": sizes.heads, f"{part}_ffn_dim": sizes.d_ff}
    with whole_folder(Path(folder)) as temporary:
        write_json(temporary / "config.json", config)
        save_weights(cpu_copy(dict(named_weights(model))), temporary / "model.safetensors")


def named_weights(model: Transformer) -> Iterator[tuple[str, Tensor]]:
    """Marian's names of the weights of a model, and the weights."""
    order = torch.cat((torch.arange(0, model.d_model, 2), torch.arange(1, model.d_model, 2)))
    yield "final_logits_bias", torch.zeros(1, model.config.vocabulary)
    yield "model.shared.weight", model.source_embedding.weight[:, order]
    for part, layers in (("encoder", model.encoder), ("decoder", model.decoder)):
        for number, layer in enumerate(cast("list[Any]", list(layers))):
            attentions = {"self_attn": layer.attention} | ({"encoder_attn": layer.cross} if part == "decoder" else {})
            named = [pair for name, attention in attentions.items() for pair in attention_weights(name, attention)]
            named += feed_forward_weights(layer.feed_forward)
            norms = [*(f"{name}_layer_norm" for name in attentions), "final_layer_norm"]
            for name, residual in zip(norms, layer.residuals, strict=True):
                named += [(f"{name}.weight", residual.norm.weight, 0), (f"{name}.bias", residual.norm.bias, 0)]
            for name, weight, axis in named:
                ordered = weight if axis is None else weight.index_select(axis, order)
                yield f"model.{part}.layers.{number}.{name}", ordered


Named = tuple[str, Tensor, int | None]  # Marian's name, the weight, and its axis over the dimensions of states, if any


def attention_weights(name: str, attention: Attention) -> list[Named]:
    """The weights of an attention."""
    weights, biases = (tensor.split(attention.widths) for tensor in (attention.project.weight, attention.project.bias))
    named: list[Named] = []
    for letter, weight, bias in zip("qkv", weights, biases, strict=True):
        named += [(f"{name}.{letter}_proj.weight", weight, 1), (f"{name}.{letter}_proj.bias", bias, None)]
    return [*named, *linear_weights(f"{name}.out_proj", attention.output)]


def feed_forward_weights(layer: FeedForward) -> list[Named]:
    """The weights of a feed-forward sub-layer."""
    inner: list[Named] = [("fc1.weight", layer.inner.weight, 1), ("fc1.bias", layer.inner.bias, None)]
    return [*inner, *linear_weights("fc2", layer.outer)]


def linear_weights(name: str, linear: nn.Linear) -> list[Named]:
    """The weights of a product whose results are states."""
    return [(f"{name}.weight", linear.weight, 0), (f"{name}.bias", linear.bias, 0)]
