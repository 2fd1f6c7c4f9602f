"""Weights on disk, as safetensors (never pickles), and models from them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from math import prod
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from transformer.files import Mistake, whole_file
from transformer.model.config import TransformerConfig
from transformer.model.transformer import Transformer
from transformer.model_folder import WEIGHTS, read_model_json

TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # of weights


def save_weights(weights: dict[str, Tensor], path: Path, durable: bool = False) -> None:
    """Write weights as safetensors, completely or not at all. durable: see whole_file.

    Without metadata: safetensors writes its keys in another order each time, and equal weights would differ in bytes.
    Raises OSError, as Python's own functions do, if the disk is full.
    """
    with whole_file(path, durable) as temporary:
        try:
            save_file(weights, temporary)
        except SafetensorError as error:
            number = re.search(r"\(os error (\d+)\)", str(error))
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) if number else error from None


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, name -> tensor.

    Raises Mistake for a file that is missing or damaged, and for tensors that are no finite numbers in one of TYPES.
    """
    with weight_file_errors(path):
        weights = load_file(path)
    for name, tensor in weights.items():
        if tensor.dtype not in TYPES or not tensor.isfinite().all():
            raise Mistake(f"{path}: {name[:60]!r} has values that are no finite numbers. Copy the file again.")
    return weights


@contextmanager
def weight_file_errors(path: Path) -> Iterator[None]:
    """In this block an error of a safetensors file that is missing or damaged becomes a Mistake with its path."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise Mistake(
            f"{path}: cannot read the weights ({' '.join(str(error).split())[:200]}). Copy the file again, or train "
            "again."
        ) from None


def build_model(path: Path, config: TransformerConfig) -> Transformer:
    """A new model of these sizes. Raises Mistake if a safetensors file has not the weights of such a model.

    Only the header of the file is read. No model is built that is much larger than the file, or has more layers than it
    has tensors.
    """
    with weight_file_errors(path), safe_open(path, framework="pt") as file:
        stored = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    layers = config.complete.encoder_layers + config.complete.decoder_layers
    if layers <= len(stored) and least_weights(config) <= sum(map(prod, stored.values())):
        model = Transformer(config)
        if stored == {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}:
            return model
    raise Mistake(f"{path} and model.json are not of one model. Copy the model folder again.")


def least_weights(config: TransformerConfig) -> int:
    """A number of weights that a model of these sizes exceeds: one matrix for each of its dimensions."""
    sizes = config.complete
    rows = sizes.d_model + sizes.d_ff + sizes.heads * sizes.key_size
    positions = sizes.max_positions if sizes.positions == "learned" else 0
    return sizes.d_model * (sizes.vocabulary + positions + (sizes.encoder_layers + sizes.decoder_layers) * rows)


def stored_config(folder: Path) -> TransformerConfig:
    """The sizes of the model of a folder."""
    path = folder / "model.json"
    return TransformerConfig.read(read_model_json(path)["sizes"], path)


def load_model(folder: Path | str) -> Transformer:
    """The Transformer of a model folder, in evaluation mode, on the CPU, with the precision it was stored in.

    Raises Mistake for weights that cannot be read, or that do not fit the sizes in model.json.
    """
    folder = Path(folder)
    config, path = stored_config(folder), folder / WEIGHTS
    model, weights = build_model(path, config), read_weights(path)
    model.to(next(iter(weights.values())).dtype).load_state_dict(weights)
    return model.eval()


def warm_start(model: Transformer, folder: Path, vocabulary: Path) -> None:
    """Copy the weights of a model folder into a new model, as the start of a training. Raises as `check_start`."""
    check_start(model.config, folder, vocabulary)
    model.load_state_dict(read_weights(folder / WEIGHTS))


def check_start(config: TransformerConfig, folder: Path, vocabulary: Path) -> None:
    """Raise Mistake if a training of a model with these sizes cannot start from a model folder.

    vocabulary: the vocab.txt of the new model. Both models must have the same vocabulary and sizes. Only the dropouts
    and, with sinusoids, max_positions may differ.
    """
    start = stored_config(folder)
    build_model(folder / WEIGHTS, start)
    stored, sizes = asdict(start.complete), asdict(config.complete)
    may_differ = {"dropout", "attention_dropout", "activation_dropout", "layers"}  # layers: as of encoder and decoder
    may_differ |= {"max_positions"} if sizes["positions"] == "sinusoidal" else set()
    for name in sorted(sizes.keys() - may_differ):
        if stored[name] != sizes[name]:
            raise Mistake(
                f"init_from={folder} has {name}={stored[name]}, this training has {name}={sizes[name]}. Training did "
                f"not start. Make them equal, or set init_from to another model."
            )
    if (folder / "vocab.txt").read_bytes() != vocabulary.read_bytes():
        raise Mistake(
            f"init_from={folder} has another vocabulary than {vocabulary}. Training did not start. Copy the "
            "merges and vocabulary of that model."
        )


def cpu_copy(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors to detached, contiguous copies on the CPU, which safetensors requires."""
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
