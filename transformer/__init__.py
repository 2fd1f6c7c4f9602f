"""Encoder-decoder Transformers for translation: `from transformer import Translator, Transformer, load_model`.

Each of these names is imported at its first use, so that a program which needs no model starts without torch.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformer.inference.translator import Translation, Translator
    from transformer.model.transformer import Transformer
    from transformer.model.weights import load_model

__all__ = ["Transformer", "Translation", "Translator", "load_model"]

# How long the threads of torch's pool spin while they wait for each other, before they sleep. The default is
# milliseconds, which makes a small model several times slower when the machine also runs other programs. Measured on
# two cores, tiny model in float32: with 4000, 11% faster than with 1000 on a quiet machine, 8% slower on a busy one.
# torch reads the variable when it is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "4000")

_MODULES = {
    "Transformer": "transformer.model.transformer",
    "Translation": "transformer.inference.translator",
    "Translator": "transformer.inference.translator",
    "load_model": "transformer.model.weights",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use (PEP 562)."""
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
