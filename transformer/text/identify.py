"""Which language a text is in, by py3langid."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from transformer.text.languages import strip_region

NORWEGIAN = {"nb": "no", "nn": "no"}


@cache
def identifier():
    """py3langid's identifier, whose model comes with the package as NumPy arrays."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def label(language: str) -> str:
    """The code by which py3langid knows a language."""
    code = strip_region(language)
    return NORWEGIAN.get(code, code)


def rank_languages(text: str, codes: Sequence[str]) -> list[tuple[str, float]]:
    """Those of `codes` that py3langid knows, with the probability that a text is in each, the most probable first.

    The probabilities add up to 1.
    """
    own = {label(code): code for code in reversed(codes)}
    ranked: dict[str, float] = {}
    for guess, probability in identifier().rank(text):
        if code := own.get(label(str(guess))):
            ranked[code] = ranked.get(code, 0.0) + float(probability)
    total = sum(ranked.values()) or 1.0
    return sorted(((code, share / total) for code, share in ranked.items()), key=lambda pair: -pair[1])
