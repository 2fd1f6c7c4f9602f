"""Encoder-decoder Transformers for translation: `from transformer import Translator`; see docs/library.md.

Each of these names is imported at its first use, so that a program which needs no model starts without torch.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformer.inference.save_model import save_model
    from transformer.inference.translation import Translation
    from transformer.inference.translator import Translator
    from transformer.model.config import TransformerConfig
    from transformer.model.transformer import Transformer
    from transformer.model.weights import load_model
    from transformer.text.bpe import Merges, learn_merges
    from transformer.text.pairs import Pairs
    from transformer.text.vocabulary import Vocabulary
    from transformer.text.words import Side
    from transformer.training.checkpoints import CheckpointStore
    from transformer.training.config import TrainConfig
    from transformer.training.loop import train
    from transformer.training.train_step import Trainer

__all__ = [
    "CheckpointStore",
    "Merges",
    "Pairs",
    "Side",
    "TrainConfig",
    "Trainer",
    "Transformer",
    "TransformerConfig",
    "Translation",
    "Translator",
    "Vocabulary",
    "learn_merges",
    "load_model",
    "save_model",
    "train",
]

# How long the threads of torch's pool spin while they wait for each other, before they sleep. The default is
# milliseconds, which makes a small model several times slower when the machine also runs other programs. Measured on
# two cores, tiny model in float32: with 4000, 11% faster than with 1000 on a quiet machine, 8% slower on a busy one.
# torch reads the variable when it is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "4000")

_MODULES = {
    "CheckpointStore": "transformer.training.checkpoints",
    "Merges": "transformer.text.bpe",
    "Pairs": "transformer.text.pairs",
    "Side": "transformer.text.words",
    "TrainConfig": "transformer.training.config",
    "Trainer": "transformer.training.train_step",
    "Transformer": "transformer.model.transformer",
    "TransformerConfig": "transformer.model.config",
    "Translation": "transformer.inference.translation",
    "Translator": "transformer.inference.translator",
    "Vocabulary": "transformer.text.vocabulary",
    "learn_merges": "transformer.text.bpe",
    "load_model": "transformer.model.weights",
    "save_model": "transformer.inference.save_model",
    "train": "transformer.training.loop",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use (PEP 562)."""
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
