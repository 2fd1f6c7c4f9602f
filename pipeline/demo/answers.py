"""What the demo's page shows of a sentence: translations with their subwords and probabilities, and attention."""

from __future__ import annotations

import base64
import math
import time
from collections.abc import Sequence
from typing import Any

from pipeline.demo.models import ModelSource
from transformer.inference.engine import Check
from transformer.inference.torch_engine import TorchEngine
from transformer.inference.translation import Translation
from transformer.inference.translator import Translator
from transformer.reporting.attention import as_bytes
from transformer.serving.limits import check_line, check_options, check_subwords
from transformer.text.marks import SPACE, join
from transformer.text.vocabulary import EOS, SPECIALS, UNK
from transformer.text.words import Side

END, UNKNOWN = SPECIALS[EOS], SPECIALS[UNK]
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
        languages = [side.language for side in (self.translator.source, self.translator.target)]
        return {"name": self.source.name, "facts": facts, "languages": languages, "examples": self.source.examples}

    def translations(self, text: str, beam_size: int | None, check: Check) -> dict[str, Any]:
        """A sentence to its translations, best first, and its subwords. An empty one has neither.

        beam_size: None: that of the model. check: called before each step of the search; what it raises ends it. Raises
        ValueError for what the limits of a request refuse.
        """
        search: dict[str, Any] = dict(self.source.search)
        if beam_size is not None:
            search["beam_size"] = beam_size
        check_options(search)
        subwords = self.subwords(text, check)
        if not subwords:
            return {"source": [], "unknown": [], "hypotheses": [], "seconds": 0.0}
        with self.translator.source.zone(forget=True):
            begin = time.perf_counter()
            (best,) = self.translator.alternatives([text], before_step=check, **search)
            ids = self.translator.vocabulary.ids
            scored = self.engine.score(
                [ids(subwords)] * len(best),
                [ids(translation.subwords) for translation in best],
                progress=lambda count: check(),
            )
            seconds = time.perf_counter() - begin
        unknown = [number == UNK for number in ids(subwords)]
        target = self.translator.target
        shown = [hypothesis(translation, logs, target) for translation, logs in zip(best, scored, strict=True)]
        return {"source": [*subwords, END], "unknown": [*unknown, False], "hypotheses": shown, "seconds": seconds}

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

        weights: bytes in Base64, 255 for 1 (reporting.attention.as_bytes), of the shape (layers, H, T, S). </s> is the
        last subword of both sides.
        Raises ValueError for a side of more than MOST_MAPPED subwords.
        """
        source = self.subwords(text, check)
        if max(len(source), len(target)) > MOST_MAPPED:
            raise ValueError(
                f"Attention is shown for up to {MOST_MAPPED} subwords. This sentence has {len(source)}, "
                f"its translation {len(target)}."
            )
        ids = self.translator.vocabulary.ids
        weights = self.engine.attention(ids(source), ids(target)).cross  # (layers, H, T, S)
        layers, heads = weights.shape[:2]
        return {
            "source": [*source, END],
            "target": [*target, END],
            "layers": layers,
            "heads": heads,
            "weights": base64.b64encode(as_bytes(weights.double().numpy()).tobytes()).decode(),
        }


def hypothesis(translation: Translation, logs: Sequence[float], side: Side) -> dict[str, Any]:
    """A translation as the page shows it. logs: log P of each subword and of </s>, from forced decoding."""
    probabilities = [math.exp(log) for log in logs]
    return {
        "text": translation.text,
        "score": translation.score,
        "log_probability": translation.log_probability,
        "subwords": [*translation.subwords, END],
        "probabilities": probabilities,
        "words": words(translation.subwords, probabilities, side.splitter == "unicode"),
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
