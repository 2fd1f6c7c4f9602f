"""A model that the server holds, and what its page shows: translations with subwords, probabilities and attention."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from transformer.decoding.config import SEARCH_OPTIONS, SearchConfig
from transformer.inference.both_engines import has_torch, load_torch
from transformer.inference.remarks import KINDS
from transformer.inference.translation import Remark, Sentence, SentencePair, Translation, join_translations
from transformer.inference.translator import Translator
from transformer.model_folder import EXPORT
from transformer.serving.limits import check_subwords
from transformer.text.marks import SPACE, join
from transformer.text.placeholders import PIECES, protect
from transformer.text.vocabulary import EOS, SPECIALS, UNK
from transformer.text.words import PIECES_OF_SERVER, Side
from transformer.verdict import verdict

if TYPE_CHECKING:
    from transformer.inference.torch_engine import TorchEngine

END, UNKNOWN = SPECIALS[EOS], SPECIALS[UNK]
# A translation, log P of each of its subwords and of the last </s> (none without torch), and its subwords as text.
Scored = tuple[Translation, Sequence[float], Sequence[str]]
MOST_MAPPED = 120  # subwords of a side, without </s>, whose attention is shown: a map of more cannot be read
NO_TORCH = "Attention needs torch and a folder with weights.safetensors."


@dataclass(frozen=True)
class ModelSource:
    """Where a model is, and what is known of it.

    name: as on the command line. folder: the model folder. search: beam_size, length_penalty and extra_length of a
    request that has none. facts: what it is -> its value: run, data. examples: source sentences that one can try.
    """

    name: str
    folder: Path
    search: Mapping[str, Any] = field(
        default_factory=lambda: {
            name: value for name, value in asdict(SearchConfig()).items() if name in SEARCH_OPTIONS
        }
    )
    facts: Mapping[str, str] = field(default_factory=dict)
    examples: tuple[str, ...] = ()


class Model:
    """A model that is ready to answer, also several threads at a time."""

    def __init__(self, source: ModelSource):
        """Load the model, for CTranslate2 if its folder has the export. Raises ValueError for a damaged folder."""
        self.source, folder = source, source.folder
        self.translator = Translator.load(folder, engine="ctranslate2" if (folder / EXPORT).is_file() else "torch")
        self.translator.source.pieces = PIECES_OF_SERVER
        self.translator.subwords(["."])  # loads spaCy

    @property
    def languages(self) -> tuple[str, str]:
        """Of the source and the target."""
        return self.translator.source.language, self.translator.target.language

    @cached_property
    def torch(self) -> TorchEngine | None:
        """The model for torch, which gives probabilities and attention; None without torch or its weights."""
        if not (self.source.folder / EXPORT).is_file():
            return cast("TorchEngine", self.translator.engine)
        return load_torch([self.source.folder]) if has_torch(self.source.folder) else None

    def description(self) -> dict[str, Any]:
        """What the page shows above the answers of this model."""
        facts = {**self.source.facts, "beam size": str(self.source.search["beam_size"])}
        if worth := verdict(self.translator.scores):
            facts["scores"] = worth
        return {
            "name": self.source.name,
            "facts": facts,
            "languages": self.languages,
            "examples": self.source.examples,
        }

    def details(self, text: str, sentences: Sequence[Sentence]) -> dict[str, Any]:
        """The translations of a text as the page shows them, best first, and the subwords of the text.

        Of several sentences the best translations are joined to one. Without torch no subwords are shown.
        """
        scored = self._scored(sentences)
        (subwords,) = self.translator.subwords([text])
        unknown = [number == UNK for number in self.translator.vocabulary.ids(subwords)]
        return {
            "source": [*subwords, END] if scored else [],
            "unknown": [*unknown, False],
            "remarks": said(scored[0][0].remarks) if scored else [],
            "hypotheses": [hypothesis(*one, self.translator.target) for one in scored],
        }

    def _scored(self, sentences: Sequence[Sentence]) -> list[Scored]:
        """The translations of a sentence, best first; of several sentences, their best ones joined to one."""
        single = len(sentences) == 1
        pairs = [
            (sentence.source, translation)
            for sentence in sentences
            for translation in (sentence.translations if single else sentence.translations[:1])
        ]
        logs: Sequence[Sequence[float]] = [[] for _ in pairs]
        ids = self.translator.vocabulary.ids
        if self.torch and pairs:
            sources = [ids(subwords) for subwords in self.translator.subwords([source for source, _ in pairs])]
            targets = [ids(translation.subwords) for _, translation in pairs]
            logs = self.torch.score(sources, targets, progress=lambda count: None)
        placeholders = self.translator.source.placeholders
        scored: list[Scored] = [
            (translation, log, shown(translation, source) if placeholders else translation.subwords)
            for (source, translation), log in zip(pairs, logs, strict=True)
        ]
        return scored if single or not scored else [join_scored(scored, [sentence.before for sentence in sentences])]

    def attention(self, text: str, target: Sequence[str]) -> dict[str, Any]:
        """The attention of the decoder over the source, for a sentence and the subwords of one of its translations.

        weights: a row for each target subword, the mean over the heads of the last layer. </s> is the last subword of
        both sides. Raises ValueError for a side of more than MOST_MAPPED subwords, for several sentences, and without
        torch.
        """
        if self.torch is None:
            raise ValueError(NO_TORCH)
        (source,) = self.translator.subwords([text])
        check_subwords("the text", len(source))
        if (count := len(self.translator.sentences(text))) > 1:
            raise ValueError(f"Attention is shown for one sentence. This text has {count}, each translated by itself.")
        if max(len(source), len(target)) > MOST_MAPPED:
            raise ValueError(
                f"Attention is shown for up to {MOST_MAPPED} subwords. This sentence has {len(source)}, "
                f"its translation {len(target)}."
            )
        ids = self.translator.vocabulary.ids
        weights = self.torch.attention(ids(source), ids(target)).cross[-1].mean(0)  # (layers, H, T, S) -> (T, S)
        return {"source": [*source, END], "target": [*target, END], "weights": weights.tolist()}


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
        [*logs, *scored[-1][1][-1:]],
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
    """A translation as the page shows it. logs: log P of each subword and of </s>. spelled: its subwords as text.

    Without logs it is one word, and no subwords.
    """
    probabilities = [math.exp(log) for log in logs]
    alone = [{"text": translation.text, "space": False, "probability": 1.0}]
    return {
        "text": translation.text,
        "score": translation.score,
        "log_probability": translation.log_probability,
        "subwords": [*translation.subwords, END] if logs else [],
        "probabilities": probabilities,
        "words": words(spelled, probabilities, side.splitter == "unicode") if logs else alone,
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
