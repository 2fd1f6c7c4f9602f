"""The module of the translator in version 0.1. It is replaced by `from transformer import Translator`.

It prints a warning when it is imported. Version 0.3 will not have it.
"""

import warnings

from transformer.inference.translator import Translation, Translator

__all__ = ["Translation", "Translator"]

warnings.warn(
    "transformer.translator is deprecated and is removed in version 0.3. Write `from transformer import Translator`.",
    FutureWarning,
    stacklevel=2,
)
