"""Weights on disk, as safetensors (never pickles), and models from them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from transformer.files import whole_file
from transformer.model.config import TransformerConfig
from transformer.model.transformer import Transformer
from transformer.model_folder import read_model_json


def save_weights(weights: dict[str, Tensor], path: Path) -> None:
    """Write weights as safetensors, completely or not at all.

    Without metadata: safetensors writes its keys in another order each time, and equal weights would differ in bytes.
    """
    with whole_file(path) as temporary:
        save_file(weights, temporary)


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, name -> tensor. Raises ValueError for a file that is missing or damaged."""
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise ValueError(
            f"{path}: cannot read the weights ({' '.join(str(error).split())}). Copy the file again, or train again."
        ) from None


def stored_config(folder: Path) -> TransformerConfig:
    """The sizes of the model of a folder."""
    return TransformerConfig(**read_model_json(folder / "model.json")["sizes"])


def load_model(folder: Path | str) -> Transformer:
    """The Transformer of a model folder, in evaluation mode, on the CPU, with the precision it was stored in.

    Raises ValueError for weights that cannot be read, or that do not fit the sizes in model.json.
    """
    folder = Path(folder)
    model = Transformer(stored_config(folder))
    weights = read_weights(folder / "weights.safetensors")
    if {name: tensor.shape for name, tensor in weights.items()} != {
        name: tensor.shape for name, tensor in model.state_dict().items()
    }:
        raise ValueError(f"{folder}: weights.safetensors and model.json are not of one model. Copy the folder again.")
    model.to(next(iter(weights.values())).dtype).load_state_dict(weights)
    return model.eval()


def warm_start(model: Transformer, folder: Path, vocabulary: Path) -> None:
    """Copy the weights of a model folder into a new model, as the start of a training. Raises as `check_start`."""
    check_start(model.config, folder, vocabulary)
    model.load_state_dict(read_weights(folder / "weights.safetensors"))


def check_start(config: TransformerConfig, folder: Path, vocabulary: Path) -> None:
    """Raise ValueError if a training of a model with these sizes cannot start from a model folder.

    vocabulary: the vocab.txt of the new model. Both models must have the same vocabulary and sizes. Only the dropouts
    and, with sinusoids, max_positions may differ.
    """
    stored, sizes = asdict(stored_config(folder).complete), asdict(config.complete)
    may_differ = {"dropout", "attention_dropout", "activation_dropout", "layers"}  # layers: as of encoder and decoder
    may_differ |= {"max_positions"} if sizes["positions"] == "sinusoidal" else set()
    for name in sorted(sizes.keys() - may_differ):
        if stored[name] != sizes[name]:
            raise ValueError(
                f"init_from={folder} has {name}={stored[name]}, this training has {name}={sizes[name]}. Training did "
                f"not start. Make them equal, or set init_from to another model."
            )
    if (folder / "vocab.txt").read_bytes() != vocabulary.read_bytes():
        raise ValueError(
            f"init_from={folder} has another vocabulary than {vocabulary}. Training did not start. Copy the "
            "merges and vocabulary of that model."
        )


def cpu_copy(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors to detached, contiguous copies on the CPU, which safetensors requires."""
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
