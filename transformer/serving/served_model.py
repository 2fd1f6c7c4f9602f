"""A model that the server holds, and what its page shows: translations with subwords, probabilities and attention."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformer.decoding.config import SearchConfig
from transformer.files import Mistake
from transformer.inference.remarks import KINDS
from transformer.inference.translation import Sentence, Translation, join_translations
from transformer.inference.translator import Translator
from transformer.serving.limits import check_sentences
from transformer.text.frames import frame
from transformer.text.vocabulary import EOS, SPECIALS, UNK
from transformer.text.words import PIECES_OF_SERVER
from transformer.verdict import verdict

END = SPECIALS[EOS]
MOST_MAPPED = 120  # subwords of a side, without </s>, whose attention is shown: more cannot be read
NO_TORCH = "Probabilities and attention need torch and a folder with weights.safetensors."


@dataclass(frozen=True)
class ModelEntry:
    """Where a model is, and what is known of it.

    name: as on the command line. folder: the model folder. search: the settings of a request that has none. origin:
    what it was made from, such as run and data -> its value. examples: source sentences that one can try.
    """

    name: str
    folder: Path
    search: SearchConfig = field(default_factory=SearchConfig)
    origin: Mapping[str, str] = field(default_factory=dict)
    examples: tuple[str, ...] = ()


class Model:
    """A model that is ready to answer, also several threads at a time."""

    def __init__(self, entry: ModelEntry, glossary: Path | None = None, threads: int = 0):
        """Load the model. See Translator.load."""
        self.entry, self.translator = entry, Translator.load(entry.folder, glossary=glossary, threads=threads)
        self.engine: Any = self.translator.engine
        self.has_details = hasattr(self.engine, "score")  # torch gives probabilities and attention
        self.translator.source.most_pieces = PIECES_OF_SERVER
        self.translator.subwords(["."])  # loads spaCy

    @property
    def languages(self) -> tuple[str, str]:
        """Of the source and the target."""
        return self.translator.source.language, self.translator.target.language

    def description(self) -> dict[str, Any]:
        """What the page shows above the answers of this model."""
        return {
            "name": self.entry.name,
            "facts": {**self.entry.origin, "beam size": str(self.entry.search.beam_size)},
            "verdict": verdict(self.translator.scores),
            "languages": self.languages,
            "examples": self.entry.examples,
        }

    def answer(self, sentences: Sequence[Sentence]) -> dict[str, Any]:
        """The translations of a text, best first. Of several sentences the best ones are joined to one."""
        single = len(sentences) == 1
        if single:
            shown = sentences[0].translations
        else:
            bests = [sentence.translations[0] for sentence in sentences]
            sums = (sum(best.score for best in bests), sum(best.log_probability for best in bests))
            shown = [Translation(join_translations(sentence.best for sentence in sentences), *sums, ())][: len(bests)]
        has_details = single and self.has_details
        hypotheses = [
            {
                "text": translation.text,
                "score": translation.score,
                "log_probability": translation.log_probability,
                # An empty translation has details, one that was made without a search has none.
                "subwords": translation.subwords
                if has_details and (translation.subwords or not translation.text)
                else None,
            }
            for translation in shown
        ]
        return {"remarks": describe_remarks(sentences), "hypotheses": hypotheses}

    def details(self, text: str, target: Sequence[str]) -> dict[str, Any]:
        """Subwords of a sentence, and of a translation with probabilities, with the attention of the decoder over it.

        target: the subwords of the translation. weights: a row for each target subword, the mean over the heads of the
        last layer; None for a side of more than MOST_MAPPED subwords. </s> is the last subword of both sides.
        Raises Mistake for several sentences, and without torch.
        """
        if not self.has_details:
            raise Mistake(NO_TORCH)
        if (count := len(self.translator.sentences(text))) > 1:
            raise Mistake(f"Subwords are shown of one sentence. This text has {count}, each translated by itself.")
        check_sentences("the text", text, self.translator)
        (subwords,) = self.translator.subwords([self.translator.mark_terms(frame(text).core)])
        source, translation = map(self.translator.vocabulary.ids, (subwords, target))
        (logs,) = self.engine.score([source], [translation], progress=lambda count: None)
        weights = None
        if max(len(source), len(target)) <= MOST_MAPPED:
            cross = self.engine.attention(source, translation).cross[-1].mean(0)  # (layers, H, T, S) -> (T, S)
            weights = cross.tolist()
        return {
            "source": [*subwords, END],
            "unknown": [*(number == UNK for number in source), False],
            "target": [*target, END],
            "probabilities": [math.exp(log) for log in logs],
            "weights": weights,
        }


def describe_remarks(sentences: Sequence[Sentence]) -> list[str]:
    """Remarks on the best translations of the sentences of a text, in words, each kind once."""
    texts: dict[str, list[str]] = {}
    for remark in (remark for sentence in sentences for remark in sentence.translations[0].remarks):
        texts.setdefault(remark.kind, []).extend(remark.pieces)
    return [KINDS[kind] + (f": {' '.join(dict.fromkeys(some))}" if some else "") for kind, some in texts.items()]
