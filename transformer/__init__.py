"""Encoder-decoder Transformers for translation: `from transformer import Translator, Transformer, load_model`.

A name is imported when it is first used, so that a program which only touches text starts without torch.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformer.inference.translator import Translation, Translator
    from transformer.model.transformer import Transformer
    from transformer.model.weights import load_model

__all__ = ["Transformer", "Translation", "Translator", "load_model"]

# Threads of torch's pool wait for each other a moment, then sleep. By default they spin for milliseconds, and on a
# machine where anything else runs a small model takes several times longer for it. Set before torch is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

_PLACES = {
    "Transformer": "transformer.model.transformer",
    "Translation": "transformer.inference.translator",
    "Translator": "transformer.inference.translator",
    "load_model": "transformer.model.weights",
}


def __getattr__(name: str) -> Any:
    """Import a public name where it is first used (PEP 562)."""
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
