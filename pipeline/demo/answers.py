"""What the demo's page shows of a sentence: translations with their subwords and probabilities, and attention."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from pipeline.demo.models import ModelSource
from transformer.inference.engine import Check
from transformer.inference.remarks import KINDS
from transformer.inference.torch_engine import TorchEngine
from transformer.inference.translation import Remark, SentencePair, Translation, join_translations
from transformer.inference.translator import Translator
from transformer.serving.limits import check_line, check_options, check_subwords
from transformer.text.marks import SPACE, join
from transformer.text.placeholders import PIECES, protect
from transformer.text.vocabulary import EOS, SPECIALS, UNK
from transformer.text.words import Side
from transformer.verdict import verdict

END, UNKNOWN = SPECIALS[EOS], SPECIALS[UNK]
# A translation, log P of each of its subwords and of the last </s>, and its subwords as text, with placeholders.
Scored = tuple[Translation, Sequence[float], Sequence[str]]
MOST_MAPPED = 120  # subwords of a side, without </s>, whose attention is shown: a map of more cannot be read


class Model:
    """A model that is ready to answer.

    One thread at a time may use it: spaCy remembers words until the end of a zone, and zones of two threads would
    disturb each other.
    """

    def __init__(self, source: ModelSource):
        """Load the model for torch, since the page shows all hypotheses, probabilities and attention.

        Raises ValueError for a damaged folder, and for one of CTranslate2 alone.
        """
        self.source, self.translator = source, Translator.load(source.folder, engine="torch")
        assert isinstance(self.translator.engine, TorchEngine)
        self.engine = self.translator.engine

    def description(self) -> dict[str, Any]:
        """What the page shows above the answers of this model."""
        facts = {**self.source.facts, "beam size": str(self.source.search["beam_size"])}
        if worth := verdict(self.translator.scores):
            facts["scores"] = worth
        languages = [side.language for side in (self.translator.source, self.translator.target)]
        return {"name": self.source.name, "facts": facts, "languages": languages, "examples": self.source.examples}

    def translations(self, text: str, beam_size: int | None, check: Check) -> dict[str, Any]:
        """A text to its translations, best first, and its subwords. An empty one has neither.

        beam_size: None: that of the model. check: called before each step of the search; what it raises ends it. Raises
        ValueError for what the limits of a request refuse. remarks, in the result: what may be wrong with the best one.
        """
        search: dict[str, Any] = dict(self.source.search)
        if beam_size is not None:
            search["beam_size"] = beam_size
        check_options(search)
        subwords = self.subwords(text, check)
        if not subwords:
            return {"source": [], "unknown": [], "remarks": [], "hypotheses": [], "seconds": 0.0}
        with self.translator.source.zone(forget=True):
            begin = time.perf_counter()
            scored = self._scored(self.translator.sentences(text), search, check)
            seconds = time.perf_counter() - begin
        unknown = [number == UNK for number in self.translator.vocabulary.ids(subwords)]
        return {
            "source": [*subwords, END],
            "unknown": [*unknown, False],
            "remarks": said(scored[0][0].remarks),
            "hypotheses": [hypothesis(*one, self.translator.target) for one in scored],
            "seconds": seconds,
        }

    def _scored(self, parts: list[tuple[str, str]], search: dict[str, Any], check: Check) -> list[Scored]:
        """The translations of a sentence, best first; of several sentences, their best ones joined to one."""
        sentences = [sentence for _, sentence in parts]
        every = self.translator.alternatives(sentences, before_step=check, **search)
        pairs = [
            (source, translation, shown(translation, sentence) if self.translator.source.placeholders else None)
            for sentence, source, best in zip(sentences, self.translator.subwords(sentences), every, strict=True)
            for translation in (best if len(every) == 1 else best[:1])
        ]
        ids, translations = self.translator.vocabulary.ids, [translation for _, translation, _ in pairs]
        logs = self.engine.score(
            [ids(source) for source, _, _ in pairs],
            [ids(translation.subwords) for translation in translations],
            progress=lambda count: check(),
        )
        spelled = [spelling or translation.subwords for _, translation, spelling in pairs]
        scored: list[Scored] = list(zip(translations, logs, spelled, strict=True))
        return [join_scored(scored, [before for before, _ in parts])] if len(every) > 1 else scored

    def subwords(self, text: str, check: Check) -> list[str]:
        """The subwords of a text, without </s>. Raises ValueError for what the limits of a request refuse."""
        check_line("the text", text)
        with self.translator.source.zone(forget=True):
            check()
            (subwords,) = self.translator.subwords([text])
        check_subwords("the text", len(subwords))
        return subwords

    def attention(self, text: str, target: Sequence[str], check: Check) -> dict[str, Any]:
        """The attention of the decoder over the source, for a sentence and the subwords of one of its translations.

        weights: a row for each target subword, the mean over the heads of the last layer. </s> is the last subword of
        both sides.
        Raises ValueError for a side of more than MOST_MAPPED subwords, and for several sentences.
        """
        source = self.subwords(text, check)
        if (count := len(self.translator.sentences(text))) > 1:
            raise ValueError(f"Attention is shown for one sentence. This text has {count}, each translated by itself.")
        if max(len(source), len(target)) > MOST_MAPPED:
            raise ValueError(
                f"Attention is shown for up to {MOST_MAPPED} subwords. This sentence has {len(source)}, "
                f"its translation {len(target)}."
            )
        ids = self.translator.vocabulary.ids
        weights = self.engine.attention(ids(source), ids(target)).cross[-1].mean(0)  # (layers, H, T, S) -> (T, S)
        return {
            "source": [*source, END],
            "target": [*target, END],
            "weights": weights.tolist(),
        }


def join_scored(scored: Sequence[Scored], breaks: Sequence[str]) -> Scored:
    """The translations of several sentences as one. breaks: the line breaks before each sentence."""
    translations = [translation for translation, _, _ in scored]
    logs = [log for _, logs, _ in scored for log in logs[:-1]]
    return (
        Translation(
            join_translations(map(SentencePair, breaks, translations, breaks)),
            sum(translation.score for translation in translations),
            sum(translation.log_probability for translation in translations),
            tuple(subword for translation in translations for subword in translation.subwords),
            tuple(remark for translation in translations for remark in translation.remarks),
        ),
        [*logs, scored[-1][1][-1]],
        [subword for _, _, spelled in scored for subword in spelled],
    )


def said(remarks: Sequence[Remark]) -> list[str]:
    """Remarks on the sentences of a text in words, each kind once."""
    pieces: dict[str, list[str]] = {}
    for remark in remarks:
        pieces.setdefault(remark.kind, []).extend(remark.pieces)
    return [" ".join([KINDS[kind], *dict.fromkeys(some)]) for kind, some in pieces.items()]


def shown(translation: Translation, sentence: str) -> list[str]:
    """The subwords of a translation, with the placeholders of its sentence in place of their numbers."""
    places = dict(zip(PIECES, protect(sentence)[1], strict=False))
    return [places.get(subword, subword) for subword in translation.subwords]


def hypothesis(translation: Translation, logs: Sequence[float], spelled: Sequence[str], side: Side) -> dict[str, Any]:
    """A translation as the page shows it. logs: log P of each subword and of </s>. spelled: its subwords as text."""
    probabilities = [math.exp(log) for log in logs]
    return {
        "text": translation.text,
        "score": translation.score,
        "log_probability": translation.log_probability,
        "subwords": [*translation.subwords, END],
        "probabilities": probabilities,
        "words": words(spelled, probabilities, side.splitter == "unicode"),
    }


def words(subwords: Sequence[str], probabilities: Sequence[float], single: bool) -> list[dict[str, Any]]:
    """The words that subwords spell, each with its text, subwords, and the probability of its least likely subword.

    single: each subword counts as a word, for languages that are written without spaces.
    """
    starts = [
        place for place, subword in enumerate(subwords) if place == 0 or single or subword.startswith((SPACE, UNKNOWN))
    ]
    ends = [*starts[1:], len(subwords)][: len(starts)]
    spelled = []
    for first, end in zip(starts, ends, strict=True):
        part = subwords[first:end]
        space = first > 0 and part[0].startswith((SPACE, UNKNOWN))
        spelled.append({"text": join(part), "space": space, "probability": min(probabilities[first:end])})
    return spelled
