"""Programs that translate, each by its own public search, with the same sentences, shape and number of steps.

Weights are random, and </s> is not allowed before the last step, so that all programs do the same work.
"""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.programs import DROPOUT, Size
from transformer.decoding.batches import padded
from transformer.decoding.beam_search import beam_search
from transformer.model.config import TransformerConfig
from transformer.model.transformer import Transformer
from transformer.text.vocabulary import EOS, SPECIALS
from transformer.training.train_step import seed_everything

SEED = 1
Ids = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Task:
    """What every program has to do, and on which device."""

    size: Size
    vocabulary: int
    beam_size: int
    batch: int  # sentences at a time
    steps: int  # subwords of every translation
    precision: str
    device: torch.device


class Decoder(ABC):
    """A program that translates some sentences, `batch` at a time."""

    def __init__(self, task: Task):
        self.task = task

    @abstractmethod
    def translate(self, sentences: Ids) -> int:
        """Translate a batch of ids without </s>, and return the number of subwords of the longest translation."""

    def translate_all(self, batches: Sequence[Ids]) -> None:
        """Translate several batches."""
        for batch in batches:
            self.translate(batch)

    def padded(self, sentences: Ids) -> Tensor:
        """The ids with </s>, padded to the longest sentence: (B, S)."""
        return padded([[*sentence, EOS] for sentence in sentences]).to(self.task.device)


def our_model(task: Task) -> Transformer:
    """This project's model with random weights."""
    seed_everything(SEED)
    size = vars(task.size) | {"vocabulary": task.vocabulary, "max_positions": 512}
    fixed = {"dropout": DROPOUT, "norm": "pre", "positions": "sinusoidal", "tie_embeddings": True}
    return Transformer(TransformerConfig(**size, **fixed)).eval()


class Ours(Decoder):
    """This project: transformer.decoding.beam_search."""

    def __init__(self, task: Task):
        super().__init__(task)
        self.model = our_model(task).to(task.device)
        self.model.compute = torch.bfloat16 if task.precision == "bfloat16" else None

    @torch.inference_mode()
    def translate(self, sentences: Ids) -> int:
        task = self.task
        limits = torch.full((len(sentences),), task.steps, device=task.device)
        results = beam_search(
            [self.model],
            self.padded(sentences),
            limits,
            beam_size=task.beam_size,
            length_penalty=0.6,
            min_length=task.steps,
        )
        return max(len(hypotheses[0].ids) for hypotheses in results)


class CTranslate2(Decoder):
    """ctranslate2.Translator.translate_batch on the same model: float32 or int8."""

    def __init__(self, task: Task):
        super().__init__(task)
        import ctranslate2

        from transformer.cores import cores
        from transformer.inference.ctranslate2_export import specification

        self.words = [*SPECIALS, *(str(number) for number in range(len(SPECIALS), task.vocabulary))]
        spec = specification(our_model(task), self.words, task.precision)
        self.folder = tempfile.TemporaryDirectory()
        spec.save(self.folder.name)
        kind = "cuda" if task.device.type == "cuda" else "cpu"
        self.translator = ctranslate2.Translator(
            self.folder.name, kind, inter_threads=cores(), intra_threads=1, compute_type=task.precision
        )  # several batches at a time are faster here than several threads per batch

    def translate(self, sentences: Ids) -> int:
        return max(len(result.hypotheses[0]) for result in self._translate(sentences))

    def translate_all(self, batches: Sequence[Ids]) -> None:
        self._translate([sentence for batch in batches for sentence in batch])

    def _translate(self, sentences: Ids) -> list:
        task = self.task
        tokens = [[self.words[number] for number in sentence] for sentence in sentences]
        return self.translator.translate_batch(
            tokens,
            max_batch_size=task.batch,
            beam_size=task.beam_size,
            max_input_length=0,
            min_decoding_length=task.steps,
            max_decoding_length=task.steps,
        )


KINDS = {"ours": Ours, "ctranslate2": CTranslate2}
OFFERED = {"ctranslate2": ("float32", "int8")}  # precisions to measure; float32 for the other
