"""A model that the server holds, and what its page shows: translations with subwords, probabilities and attention."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from transformer.decoding.config import SearchConfig
from transformer.files import Mistake
from transformer.inference.both_engines import has_torch, load_torch
from transformer.inference.remarks import KINDS
from transformer.inference.translation import Sentence, Translation, join_translations
from transformer.inference.translator import Translator
from transformer.model_folder import EXPORT
from transformer.text.frames import frame
from transformer.text.marks import SPACE, join
from transformer.text.placeholders import NUMBERS, protect
from transformer.text.vocabulary import EOS, SPECIALS, UNK
from transformer.text.words import PIECES_OF_SERVER
from transformer.verdict import verdict

if TYPE_CHECKING:
    from transformer.inference.ctranslate2_engine import CTranslate2Engine
    from transformer.inference.torch_engine import TorchEngine

END, UNKNOWN = SPECIALS[EOS], SPECIALS[UNK]
MOST_MAPPED = 120  # subwords of a side, without </s>, whose attention is shown: a map of more cannot be read
NO_TORCH = "Attention needs torch and a folder with weights.safetensors."


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
        """Load the model, for CTranslate2 if its folder has the export. See Translator.load."""
        self.entry, folder = entry, entry.folder
        engine = "ctranslate2" if (folder / EXPORT).is_file() else "torch"
        self.translator = Translator.load(folder, engine=engine, glossary=glossary, threads=threads)
        if engine == "ctranslate2":
            cast("CTranslate2Engine", self.translator.engine).parts = 1  # batches.py has a batch for each core
        self.translator.source.most_pieces = PIECES_OF_SERVER
        self.translator.subwords(["."])  # loads spaCy

    @property
    def languages(self) -> tuple[str, str]:
        """Of the source and the target."""
        return self.translator.source.language, self.translator.target.language

    @cached_property
    def torch(self) -> TorchEngine | None:
        """The model for torch, which gives probabilities and attention; None without torch or its weights."""
        if not (self.entry.folder / EXPORT).is_file():
            return cast("TorchEngine", self.translator.engine)
        return load_torch([self.entry.folder]) if has_torch(self.entry.folder) else None

    def description(self) -> dict[str, Any]:
        """What the page shows above the answers of this model."""
        facts = {**self.entry.origin, "beam size": str(self.entry.search.beam_size)}
        if worth := verdict(self.translator.scores):
            facts["scores"] = worth
        return {
            "name": self.entry.name,
            "facts": facts,
            "languages": self.languages,
            "examples": self.entry.examples,
        }

    def details(self, sentences: Sequence[Sentence]) -> dict[str, Any]:
        """The translations of a text as the page shows them, best first, and the subwords of the text.

        Subwords are shown of one sentence, with torch. Of several sentences the best translations are joined to one.
        """
        bests = [sentence.translations[0] for sentence in sentences]
        answer = {
            "source": [],
            "unknown": [],
            "remarks": describe_remarks(sentences),
        }
        if len(sentences) != 1:
            text = join_translations(sentence.best for sentence in sentences)
            score = sum(translation.score for translation in bests)
            joined = Translation(text, score, sum(translation.log_probability for translation in bests), ())
            return {**answer, "hypotheses": [hypothesis(joined)] if sentences else []}
        ((source, translations, _),) = sentences
        if self.torch is None:
            return {**answer, "hypotheses": [hypothesis(translation) for translation in translations]}
        before, core, after = frame(source)
        marked = self.translator.mark_terms(core)
        (subwords,) = self.translator.subwords([marked])
        ids = self.translator.vocabulary.ids
        numbers = ids(subwords)
        targets = [ids(translation.subwords) for translation in translations]
        logs = self.torch.score([numbers] * len(targets), targets, progress=lambda count: None)
        values = protect(marked)[1] if self.translator.source.placeholders else ()
        filled = [self.translator.fill_terms(core, value) for value in values]
        protected = dict(zip(NUMBERS, filled, strict=False))
        single = self.translator.target.splitter == "unicode"
        return {
            **answer,
            "source": [*subwords, END],
            "unknown": [*(number == UNK for number in numbers), False],
            "hypotheses": [
                hypothesis_with_subwords(translation, log, protected, single, before, after)
                if translation.subwords or not translation.text
                else hypothesis(translation)
                for translation, log in zip(translations, logs, strict=True)
            ],
        }

    def attention(self, text: str, target: Sequence[str]) -> dict[str, Any]:
        """The attention of the decoder over the source, for a sentence and the subwords of one of its translations.

        weights: a row for each target subword, the mean over the heads of the last layer. </s> is the last subword of
        both sides. Raises Mistake for a side of more than MOST_MAPPED subwords, for several sentences, and without
        torch.
        """
        if self.torch is None:
            raise Mistake(NO_TORCH)
        if (count := len(self.translator.sentences(text))) > 1:
            raise Mistake(f"Attention is shown for one sentence. This text has {count}, each translated by itself.")
        (source,) = self.translator.subwords([self.translator.mark_terms(frame(text).core)])
        if max(len(source), len(target)) > MOST_MAPPED:
            raise Mistake(
                f"Attention is shown for up to {MOST_MAPPED} subwords. This sentence has {len(source)}, "
                f"its translation {len(target)}."
            )
        ids = self.translator.vocabulary.ids
        weights = self.torch.attention(ids(source), ids(target)).cross[-1].mean(0)  # (layers, H, T, S) -> (T, S)
        return {"source": [*source, END], "target": [*target, END], "weights": weights.tolist()}


def describe_remarks(sentences: Sequence[Sentence]) -> list[str]:
    """Remarks on the best translations of the sentences of a text, in words, each kind once."""
    texts: dict[str, list[str]] = {}
    for remark in (remark for sentence in sentences for remark in sentence.translations[0].remarks):
        texts.setdefault(remark.kind, []).extend(remark.pieces)
    return [KINDS[kind] + (f": {' '.join(dict.fromkeys(some))}" if some else "") for kind, some in texts.items()]


def hypothesis(translation: Translation) -> dict[str, Any]:
    """A translation as the page shows it: as one word, without subwords."""
    return {
        "text": translation.text,
        "score": translation.score,
        "log_probability": translation.log_probability,
        "subwords": [],
        "probabilities": [],
        "words": [{"text": translation.text, "space": False, "probability": 1.0}],
    }


def hypothesis_with_subwords(
    translation: Translation,
    logs: Sequence[float],
    protected: Mapping[str, str],
    single: bool,
    before: str = "",
    after: str = "",
) -> dict[str, Any]:
    """A translation as the page shows it, with its subwords and </s>, and words that are marked if they are unlikely.

    logs: log P of each subword and of </s>. protected: number of a placeholder -> its text. single: see `words`.
    before, after: what frames the sentence.
    """
    probabilities = [math.exp(log) for log in logs]
    return {
        **hypothesis(translation),
        "subwords": [*translation.subwords, END],
        "probabilities": probabilities,
        "words": [
            *framing(before),
            *words([protected.get(each, each) for each in translation.subwords], probabilities, single),
            *framing(after),
        ],
    }


def framing(text: str) -> list[dict[str, Any]]:
    """What frames a sentence, as a word that is sure; nothing without it."""
    return [{"text": text, "space": False, "probability": 1.0}] if text else []


def words(subwords: Sequence[str], probabilities: Sequence[float], single: bool) -> list[dict[str, Any]]:
    """The words that subwords spell, each with its text, subwords, and the probability of its least likely subword.

    single: each subword counts as a word, for languages that are written without spaces.
    """
    starts = [
        index for index, subword in enumerate(subwords) if index == 0 or single or subword.startswith((SPACE, UNKNOWN))
    ]
    ends = [*starts[1:], len(subwords)][: len(starts)]
    spelled = []
    for first, end in zip(starts, ends, strict=True):
        part = subwords[first:end]
        space = first > 0 and part[0].startswith((SPACE, UNKNOWN))
        spelled.append({"text": join(part), "space": space, "probability": min(probabilities[first:end])})
    return spelled
