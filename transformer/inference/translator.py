"""The public interface: a model folder that translates text.

    from transformer import Translator
    translator = Translator.load("data/model")
    translator.translate(["Ein Hund rennt."], beam_size=4)    # -> ["A dog is running."]

A folder of the stage average runs on torch, one of the stage export on CTranslate2; either stands alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer.decoding.config import SamplingConfig, SearchConfig
from transformer.decoding.hypothesis import Hypothesis
from transformer.inference.engine import Engine, Progress
from transformer.model_folder import read_model_json
from transformer.text.bpe import Merges
from transformer.text.vocabulary import UNK, Vocabulary
from transformer.text.words import Side, join

if TYPE_CHECKING:
    from transformer.decoding.attention_maps import AttentionMaps


@dataclass(frozen=True)
class Translation:
    """A translation and what the model makes of it."""

    text: str
    score: float  # log_probability / ((5 + n) / 6)^length_penalty; what ranks alternatives
    log_probability: float  # log P(subwords, </s> | source), in nats
    subwords: tuple[str, ...]


class Translator:
    """Text in, text out."""

    def __init__(self, engine: Engine, merges: Merges, vocabulary: Vocabulary, source: Side, target: Side):
        self.engine, self.merges, self.vocabulary = engine, merges, vocabulary
        self.source, self.target = source, target

    @classmethod
    def load(cls, *folders: Path | str) -> Translator:
        """Read a model folder, onto the GPU if there is one; several with one vocabulary translate as an ensemble.

        Raises ValueError for a folder that is not one, or folders that do not go together.
        """
        paths = [Path(folder) for folder in folders]
        cards = [read_model_json(path / "model.json") for path in paths]
        vocabulary, merges = Vocabulary.load(paths[0] / "vocab.txt"), Merges.load(paths[0] / "bpe.codes")
        for path, card in zip(paths, cards, strict=True):
            if any((path / name).read_bytes() != (paths[0] / name).read_bytes() for name in ("vocab.txt", "bpe.codes")):
                raise ValueError(f"{path} has another vocabulary than {paths[0]}; an ensemble needs one for all")
            if "ctranslate2" in card and len(paths) > 1:
                raise ValueError(f"{path} is for CTranslate2, which knows no ensembles; use the folders it came from")
        first = cards[0]
        if "ctranslate2" in first:
            from transformer.inference.ctranslate2_engine import (
                CTranslate2Engine,  # either engine works without the other's library
            )

            engine = CTranslate2Engine(paths[0], vocabulary, first["ctranslate2"]["positions"])
        else:
            from transformer.inference.torch_engine import TorchEngine

            engine = TorchEngine.load(paths)
        return cls(engine, merges, vocabulary, *Side.of(first))

    def translate(self, lines: Sequence[str], **settings: Any) -> list[str]:
        """The best translation of each line. Settings as of `alternatives`."""
        return [found[0].text for found in self.alternatives(lines, **settings)]

    def alternatives(
        self, lines: Sequence[str], progress: Progress = lambda count: None, **settings: Any
    ) -> list[list[Translation]]:
        """At most beam_size translations of each line, best first; an empty line has one, empty.

        settings: the fields of SearchConfig: beam_size, length_penalty, extra_length, replace_unk. progress(count) is
        called as sentences get done. Raises ValueError for a setting out of range.
        """
        config = SearchConfig(**settings)
        if config.replace_unk and not self.merges.empty:
            raise ValueError("replace_unk is for word-level models (bpe_merges: 0); this one has subwords")
        words = self.words(lines)
        found = self._of_each(words, partial(self.engine.search, config=config), progress)
        sources = words if config.replace_unk else [None] * len(lines)
        return [[self._translation(hypothesis, source) for hypothesis in hypotheses]
                for source, hypotheses in zip(sources, found, strict=True)]  # fmt: skip

    def sample(
        self, lines: Sequence[str], progress: Progress = lambda count: None, **settings: Any
    ) -> list[list[Translation]]:
        """Translations of each line drawn at random; the same seed gives the same ones.

        settings: the fields of SamplingConfig: samples, seed, temperature, top_k, top_p, extra_length. Raises
        ValueError for a setting out of range.
        """
        method = partial(self._torch("sample"), config=SamplingConfig(**settings))
        found = self._of_each(self.words(lines), method, progress)
        return [[self._translation(hypothesis) for hypothesis in hypotheses] for hypotheses in found]

    def score(self, sources: Sequence[str], targets: Sequence[str], progress: Progress = lambda count: None
              ) -> list[list[float]]:  # fmt: skip
        """log P of each subword of given translations, </s> last, in nats (forced decoding)."""
        if len(sources) != len(targets):
            raise ValueError(f"{len(sources)} sources and {len(targets)} targets; each source needs one")
        ids = [self.vocabulary.ids(subwords) for subwords in self.words(sources)]
        theirs = [self.vocabulary.ids(subwords) for subwords in self.words(targets, self.target)]
        return self._torch("score")(ids, theirs, progress=progress)

    def attention(self, source: str, target: str) -> tuple[AttentionMaps, list[str], list[str]]:
        """Attention weights per layer and head as the model reads a pair, and the subwords along the two sides."""
        (one,), (other,) = self.words([source]), self.words([target], self.target)
        maps = self._torch("attention")(self.vocabulary.ids(one), self.vocabulary.ids(other))
        return maps, [*one, "</s>"], [*other, "</s>"]

    def words(self, lines: Sequence[str], side: Side | None = None) -> list[list[str]]:
        """The subwords of each line, a source unless another side is given."""
        return [self.merges.subwords((side or self.source).tokens(line)) for line in lines]

    def _torch(self, method: str) -> Callable:
        """A method that only the torch engine has."""
        if not hasattr(self.engine, method):
            raise ValueError(f"{method} needs a model folder of the stage average; CTranslate2 does not offer it here")
        return getattr(self.engine, method)

    def _of_each(self, words: list[list[str]], method: Callable, progress: Progress) -> list[list[Hypothesis]]:
        """What an engine finds for each line; an empty line is not put to it."""
        ids = [self.vocabulary.ids(subwords) for subwords in words]
        rows = [row for row, sequence in enumerate(ids) if sequence]
        results = [[Hypothesis((), 0.0, 0.0)] for _ in ids]
        progress(len(ids) - len(rows))
        for row, found in zip(rows, method([ids[row] for row in rows], progress=progress), strict=True):
            results[row] = found
        return results

    def _translation(self, found: Hypothesis, source: list[str] | None = None) -> Translation:
        """A hypothesis as text; given the source words, they replace each <unk>."""
        subwords = [self.vocabulary.subwords[number] for number in found.ids]
        text = self.vocabulary.text(found.ids)
        if source and UNK in found.ids:
            weights = self._torch("attention")(self.vocabulary.ids(source), found.ids).cross[-1].mean(0)  # (T, S)
            best = weights[:, : len(source)].argmax(-1).tolist()
            copied = [source[best[place]] if number == UNK else subwords[place]
                      for place, number in enumerate(found.ids)]  # fmt: skip
            text = join(copied)
        return Translation(text, found.score, found.log_probability, tuple(subwords))
