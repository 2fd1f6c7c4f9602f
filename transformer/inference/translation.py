"""What a translator returns: a translation, a sentence of a line with its translation, attention weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from transformer.decoding.attention_maps import AttentionMaps


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


class PairAttention(NamedTuple):
    """Attention weights on a sentence pair, and the subwords that label their rows and columns."""

    maps: AttentionMaps
    source: list[str]  # S subwords, </s> last
    target: list[str]  # T subwords, </s> last: those that the model predicts in the rows of maps.cross


def join_translations(pairs: Iterable[SentencePair]) -> str:
    """The translations of the sentences of a line as one line."""
    return " ".join(filter(None, (pair.translation.text for pair in pairs)))
