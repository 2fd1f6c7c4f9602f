"""Version 0.1's place of the translator; until version 0.3. The new one: `from transformer import Translator`."""

import warnings

from transformer.inference.translator import Translation, Translator

__all__ = ["Translation", "Translator"]

warnings.warn("transformer.translator is now: from transformer import Translator", FutureWarning, stacklevel=2)
