"""Weights on disk: safetensors, never pickles."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from transformer.files import whole_file
from transformer.model.transformer import Transformer, TransformerConfig
from transformer.model_folder import read_model_json


def save_weights(weights: dict[str, Tensor], path: Path) -> None:
    """Write weights as safetensors, whole or not at all, without metadata (its order would change from run to run)."""
    with whole_file(path) as temporary:
        save_file(weights, temporary)


def load_model(folder: Path) -> Transformer:
    """The Transformer of a model folder, in evaluation mode, on the CPU, with the precision it was stored in."""
    sizes = read_model_json(folder / "model.json")["sizes"]
    weights = load_file(folder / "weights.safetensors")
    model = Transformer(TransformerConfig(**sizes)).to(next(iter(weights.values())).dtype)
    model.load_state_dict(weights)
    return model.eval()


def warm_start(model: Transformer, folder: Path, vocabulary: Path) -> None:
    """Put the weights of a model folder into a new model, for training to go on from.

    Raises ValueError where sizes (all but dropouts and, for sinusoids, max_positions) or vocabulary differ.
    """
    theirs, sizes = read_model_json(folder / "model.json")["sizes"], asdict(model.config)
    free = {"dropout", "attention_dropout", "activation_dropout"}
    free |= {"max_positions"} if sizes["positions"] == "sinusoidal" else set()
    for name in sorted(sizes.keys() - free):
        if theirs[name] != sizes[name]:
            raise ValueError(
                f"init_from={folder} has {name}={theirs[name]}, this training {sizes[name]}; make them equal"
            )
    if (folder / "vocab.txt").read_bytes() != vocabulary.read_bytes():
        raise ValueError(f"init_from={folder} has another vocabulary than {vocabulary}; `dvc repro` takes over its own")
    model.load_state_dict(load_file(folder / "weights.safetensors"))


def cpu_copy(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Detached, contiguous copies on the CPU, as safetensors wants them."""
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
