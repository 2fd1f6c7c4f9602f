"""The small trainings of the walkthrough, on the built-in corpus. Each differs from the usual one in one thing.

The setup is the paper's in small: post-norm, Adam, dropout 0.1, label smoothing 0.1, the rate of equation 3. Each
training is repeated with the seeds of SEEDS, which draw the weights, the order of the batches and dropout. So two
setups have the same batches in the same order with the same seed, and are compared seed by seed.
"""

from __future__ import annotations

import math
import multiprocessing
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from transformer.files import read_lines
from transformer.model.attention import Attention
from transformer.model.config import TransformerConfig
from transformer.model.transformer import Transformer
from transformer.text.bpe import Merges, learn_merges
from transformer.text.pairs import Pairs
from transformer.text.vocabulary import Vocabulary
from transformer.text.words import Side
from transformer.training.config import TrainConfig
from transformer.training.distributed import World
from transformer.training.train_step import Trainer, predictions, seed_everything
from transformer.training.validation import valid_loss

SEEDS, UPDATES, MERGES = (1, 2, 3, 4, 5, 6), 120, 300
LONG, LONG_SEEDS = 4 * UPDATES, SEEDS[:3]  # of the longer trainings
CURVE_EVERY = 40  # updates
PAIRS = {"train": 4000, "valid": 200}
SIZES = {"d_model": 64, "d_ff": 128, "heads": 4, "layers": 2, "dropout": 0.1, "norm": "post"}
UPDATE = {
    "batch_tokens": 1024,
    "device_tokens": 1024,
    "max_steps": 1000,
    "save_every": 50,
    "warmup": 50,
    "lr_factor": 0.4,
}
DEEP: dict[str, Any] = {"layers": 6, "d_model": 32, "d_ff": 64}


class Corpus(NamedTuple):
    """The text of the measurements: lines, words with their counts, merges, vocabulary, and pairs of ids."""

    texts: dict[str, list[tuple[str, str]]]
    counts: Counter[str]
    codes: str
    merges: Merges
    vocabulary: Vocabulary
    pairs: dict[str, Pairs]


@cache
def corpus() -> Corpus:
    """The first sentences of the built-in corpus, in subwords."""
    sides = Side("de", lowercase=False), Side("en", lowercase=False)
    texts = {
        split: list(islice(zip(*(read_lines(f"corpora/toy/{split}.{side}") for side in ("de", "en")), strict=True), n))
        for split, n in PAIRS.items()
    }
    tokens = {
        split: [[side.tokens(line) for side, line in zip(sides, pair, strict=True)] for pair in pairs]
        for split, pairs in texts.items()
    }
    counts = Counter(word for pair in tokens["train"] for side in pair for word in side)
    codes = learn_merges(counts, MERGES)
    merges, subwords = Merges(codes), Counter()
    for word, count in counts.items():
        subwords.update(dict.fromkeys(merges.subwords([word]), count))
    vocabulary = Vocabulary.build(subwords, min_count=1)
    ids = {
        split: Pairs.pack([tuple(vocabulary.ids(merges.subwords(side)) for side in pair) for pair in pairs])
        for split, pairs in tokens.items()
    }
    return Corpus(texts, counts, codes, merges, vocabulary, ids)


class Unscaled(Transformer):
    """A Transformer whose embeddings are not multiplied by sqrt(D)."""

    def embed(self, embedding: nn.Embedding, ids: Tensor, encodings: Tensor | None = None) -> Tensor:
        factor = math.sqrt(self.d_model)
        encodings = self.position_encodings(0, ids.shape[1]) if encodings is None else encodings
        return super().embed(embedding, ids, factor * encodings) / factor


class NoPositions(Transformer):
    """A Transformer without position encodings."""

    def position_encodings(self, start: int, length: int) -> Tensor:
        return torch.zeros(length, self.d_model, dtype=self.source_embedding.weight.dtype)


class UndividedAttention(Attention):
    """Attention whose scores are not divided by sqrt(d_k)."""

    def attend(self, queries: Tensor, keys_values: tuple[Tensor, Tensor], bias: Tensor | None) -> Tensor:
        return super().attend(queries * queries.shape[-1] ** 0.5, keys_values, bias)


class Undivided(Transformer):
    """A Transformer with that attention everywhere."""

    def __init__(self, config: TransformerConfig):
        super().__init__(config)
        for module in self.modules():
            if isinstance(module, Attention):
                module.__class__ = UndividedAttention


class WithoutLastNorm(Transformer):
    """A Transformer without a norm after the last layer."""

    def __init__(self, config: TransformerConfig):
        super().__init__(config)
        self.encoder_norm = self.decoder_norm = nn.Identity()


class WithoutWarmUp(Trainer):
    """A Trainer whose rate is the highest one of equation 3 from the first update to the last one of the warm-up."""

    def rate(self, step: int) -> float:
        return super().rate(max(step, self.config.warmup))


@dataclass(frozen=True)
class Setup:
    """How a training differs from the others: the classes of model and trainer, and changed sizes and knobs."""

    kind: type[Transformer] = Transformer
    trainer: type[Trainer] = Trainer
    sizes: tuple[tuple[str, Any], ...] = ()
    knobs: tuple[tuple[str, Any], ...] = ()


def setup(kind: type[Transformer] = Transformer, trainer: type[Trainer] = Trainer, **changes: Any) -> Setup:
    """A Setup from changed sizes and knobs by name."""
    names = set(TransformerConfig.__dataclass_fields__)
    sizes = tuple((name, value) for name, value in changes.items() if name in names)
    return Setup(kind, trainer, sizes, tuple((name, value) for name, value in changes.items() if name not in names))


SETUPS = {
    "usual": setup(),
    "unscaled": setup(Unscaled),
    "untied": setup(tie_embeddings=False),
    "no positions": setup(NoPositions),
    "learned positions": setup(positions="learned"),
    "one head": setup(heads=1),
    "undivided": setup(Undivided, heads=1),
    "no warm-up": setup(trainer=WithoutWarmUp),
    "no smoothing": setup(label_smoothing=0.0),
    "no dropout": setup(dropout=0.0),
    "pre": setup(norm="pre"),
    "muon": setup(optimiser="muon", muon_factor=1.0),
    "deep post": setup(**DEEP),
    "deep pre": setup(norm="pre", **DEEP),
    "deep pre, no last norm": setup(WithoutLastNorm, norm="pre", **DEEP),
}


def new_model(kind: type[Transformer] = Transformer, seed: int = 1, **sizes: Any) -> Transformer:
    """An untrained model."""
    seed_everything(seed)
    return kind(TransformerConfig(len(corpus().vocabulary), max_positions=128, **{**SIZES, **sizes}))


def trained(setting: Setup, seed: int, updates: int = UPDATES) -> dict[str, Any]:
    """Train a model with a seed. Returns what it reaches on the validation pairs, and its curve."""
    torch.set_num_threads(1)
    pairs = corpus().pairs
    config = TrainConfig(**{"seed": seed, **UPDATE, **dict(setting.knobs)})
    model = new_model(setting.kind, seed, **dict(setting.sizes))
    trainer = setting.trainer(model, pairs["train"], pairs["valid"], World(), config)
    curve, checkpoints = [], []
    for step in range(1, updates + 1):
        trainer.update(step)
        if step % CURVE_EVERY == 0:
            curve.append(valid_loss(trainer))
        if step > updates - 50 and step % 10 == 0:
            checkpoints.append({name: value.clone() for name, value in model.state_dict().items()})
    sure, right = confidence(trainer)
    model.load_state_dict({name: sum(some[name] for some in checkpoints) / 5 for name in checkpoints[0]})
    return {"loss": curve[-1], "sure": sure, "right": right, "mean of checkpoints": valid_loss(trainer), "curve": curve}


@torch.no_grad()
def confidence(trainer: Trainer) -> tuple[float, float]:
    """Mean probability of the likeliest subword, and how often it is right, on the validation pairs."""
    trainer.model.eval()
    states, weight, targets = predictions(trainer.model, trainer.batch(trainer.valid_pairs, np.arange(PAIRS["valid"])))
    best = (states @ weight.T).softmax(-1).max(-1)
    return best.values.mean().item(), (best.indices == targets).double().mean().item()


def trainings(names: list[str] | None = None, seeds: Sequence[int] = SEEDS, updates: int = UPDATES) -> dict[str, Any]:
    """Each training of SETUPS with each seed: name -> measure -> a value for each seed."""
    names = names or list(SETUPS)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        jobs = {name: [pool.submit(trained, SETUPS[name], seed, updates) for seed in seeds] for name in names}
        results = {name: [job.result() for job in of_name] for name, of_name in jobs.items()}
    return {name: {key: [run[key] for run in runs] for key in runs[0]} for name, runs in results.items()}


def longer() -> dict[str, Any]:
    """The usual training, and the one without positions, with four times the updates."""
    return trainings(["usual", "no positions"], LONG_SEEDS, LONG)
