"""What a translator returns: a translation, a sentence of a line with its translation, attention weights."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from transformer.decoding.attention_maps import AttentionMaps


# The end of a sentence of Chinese or Japanese, which have no spaces between sentences.
_WIDE = re.compile("[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff][”’…\"')]*$")


class Remark(NamedTuple):
    """What may be wrong with a translation. kind: see remarks.KINDS. pieces: the words of the source that it names."""

    kind: str
    pieces: tuple[str, ...] = ()


@dataclass(frozen=True)
class Translation:
    """A translation with its subwords and its probability under the model."""

    text: str
    score: float  # log_probability / ((5 + n) / 6)^length_penalty, n subwords with </s>
    log_probability: float  # log P(subwords, </s> | source), in nats; without </s> if it met the length limit
    subwords: tuple[str, ...]
    remarks: tuple[Remark, ...] = ()  # of the best translation of a sentence, and of samples


class SentencePair(NamedTuple):
    """A sentence of a line, and its best translation. before: the line breaks between it and the sentence before."""

    source: str
    translation: Translation
    before: str = ""


class Sentence(NamedTuple):
    """A sentence of a line, and its translations, best first. before: as in SentencePair."""

    source: str
    translations: list[Translation]
    before: str = ""

    @property
    def best(self) -> SentencePair:
        """The sentence with its best translation."""
        return SentencePair(self.source, self.translations[0], self.before)


class PairAttention(NamedTuple):
    """Attention weights on a sentence pair, and the subwords that label their rows and columns."""

    maps: AttentionMaps
    source: list[str]  # S subwords, </s> last
    target: list[str]  # T subwords, </s> last: those that the model predicts in the rows of maps.cross


def join_translations(pairs: Iterable[SentencePair]) -> str:
    """The translations of the sentences of a text: by its line breaks, by a space or, after Chinese, by nothing."""
    text = ""
    for pair in pairs:
        space = "" if not text or _WIDE.search(text) else " "
        text += pair.before or (space if pair.translation.text else "")
        text += pair.translation.text
    return text
