"""What a translator returns: a translation, and a sentence of a line with its translation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Translation:
    """A translation with its subwords and its probability under the model."""

    text: str
    score: float  # log_probability / ((5 + n) / 6)^length_penalty, n subwords with </s>
    log_probability: float  # log P(subwords, </s> | source), in nats; without </s> if it met the length limit
    subwords: tuple[str, ...]


class SentencePair(NamedTuple):
    """A sentence of a line, and its best translation."""

    source: str
    translation: Translation


def join_translations(pairs: Iterable[SentencePair]) -> str:
    """The translations of the sentences of a line as one line."""
    return " ".join(filter(None, (pair.translation.text for pair in pairs)))
