"""The measurements of the walkthrough: small trainings on the built-in corpus, and what can be computed without any.

    python -m pipeline walkthrough --measure     # all, in about ten minutes on two cores: docs/walkthrough.json

The setup is the paper's in small: post-norm, Adam, dropout 0.1, label smoothing 0.1, the rate of equation 3. Each
training is repeated with the seeds of SEEDS, which draw the weights, the order of the batches and dropout.
"""

from __future__ import annotations

import math
import multiprocessing
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from transformer.corpora.toy.grammar import toy_corpus
from transformer.model.attention import Attention
from transformer.model.config import TransformerConfig
from transformer.model.transformer import Transformer
from transformer.text.bpe import Merges, learn_merges
from transformer.text.pairs import Pairs
from transformer.text.vocabulary import Vocabulary
from transformer.text.words import Side
from transformer.training.batches import global_batches
from transformer.training.config import TrainConfig
from transformer.training.distributed import World
from transformer.training.loss import smoothed_cross_entropy
from transformer.training.optimiser import orthogonal
from transformer.training.train_step import Trainer, predict, seed_everything
from transformer.training.validation import valid_loss

SEEDS, UPDATES, MERGES = (1, 2, 3), 120, 300
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
DEEP = {"layers": 6, "d_model": 32, "d_ff": 64}
PAPER = {  # table 3: width, inner width, heads, published number of weights
    "base": (512, 2048, 8, 65_000_000),
    "big": (1024, 4096, 16, 213_000_000),
}
PAPER_VOCABULARY = 37_000  # section 5.1


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
    everything = toy_corpus()
    texts = {split: [(pair.source, pair.target) for pair in everything[split][:n]] for split, n in PAIRS.items()}
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
    """Attention whose scores are not divided by sqrt(K)."""

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


@dataclass(frozen=True)
class Setup:
    """How a training differs from the others: the class of the model, and changed sizes and knobs."""

    kind: type[Transformer] = Transformer
    sizes: tuple[tuple[str, Any], ...] = ()
    knobs: tuple[tuple[str, Any], ...] = ()


def setup(kind: type[Transformer] = Transformer, **changes: Any) -> Setup:
    """A Setup from changed sizes and knobs by name."""
    names = set(TransformerConfig.__dataclass_fields__)
    sizes = tuple((name, value) for name, value in changes.items() if name in names)
    return Setup(kind, sizes, tuple((name, value) for name, value in changes.items() if name not in names))


SETUPS = {
    "usual": setup(),
    "unscaled": setup(Unscaled),
    "untied": setup(tie_embeddings=False),
    "no positions": setup(NoPositions),
    "learned positions": setup(positions="learned"),
    "one head": setup(heads=1),
    "undivided": setup(Undivided, heads=1),
    "no warm-up": setup(warmup=1, lr_factor=0.4 * 50**-0.5),  # equation 3: to the same highest rate
    "no smoothing": setup(label_smoothing=0.0),
    "no dropout": setup(dropout=0.0),
    "pre": setup(norm="pre"),
    "muon": setup(optimiser="muon"),
    "deep post": setup(**DEEP),
    "deep pre": setup(norm="pre", **DEEP),
    "deep pre, no last norm": setup(WithoutLastNorm, norm="pre", **DEEP),
}


def new_model(kind: type[Transformer] = Transformer, seed: int = 1, **sizes: Any) -> Transformer:
    """An untrained model."""
    seed_everything(seed)
    return kind(TransformerConfig(len(corpus().vocabulary), max_positions=128, **{**SIZES, **sizes}))


def trained(setting: Setup, seed: int) -> dict[str, Any]:
    """Train a model with a seed. Returns what it reaches on the validation pairs, and its curve."""
    torch.set_num_threads(1)
    pairs = corpus().pairs
    config = TrainConfig(**{"seed": seed, **UPDATE, **dict(setting.knobs)})
    model = new_model(setting.kind, seed, **dict(setting.sizes))
    trainer = Trainer(model, pairs["train"], pairs["valid"], World(), config)
    curve, checkpoints = [], []
    for step in range(1, UPDATES + 1):
        trainer.update(step)
        if step % 40 == 0:
            curve.append(valid_loss(trainer))
        if step > UPDATES - 50 and step % 10 == 0:
            checkpoints.append({name: value.clone() for name, value in model.state_dict().items()})
    sure, right = confidence(trainer)
    model.load_state_dict({name: sum(some[name] for some in checkpoints) / 5 for name in checkpoints[0]})
    return {"loss": curve[-1], "sure": sure, "right": right, "mean of checkpoints": valid_loss(trainer), "curve": curve}


@torch.no_grad()
def confidence(trainer: Trainer) -> tuple[float, float]:
    """Mean probability of the likeliest subword, and how often it is right, on the validation pairs."""
    trainer.model.eval()
    states, weight, targets = predict(trainer.model, trainer.batch(trainer.valid_pairs, np.arange(PAIRS["valid"])))
    best = (states @ weight.T).softmax(-1).max(-1)
    return best.values.mean().item(), (best.indices == targets).double().mean().item()


def trainings(names: list[str] | None = None) -> dict[str, Any]:
    """Each training of SETUPS with each seed: name -> measure -> a value for each seed."""
    names = names or list(SETUPS)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        jobs = {name: [pool.submit(trained, SETUPS[name], seed) for seed in SEEDS] for name in names}
        results = {name: [job.result() for job in of_name] for name, of_name in jobs.items()}
    return {name: {key: [run[key] for run in runs] for key in runs[0]} for name, runs in results.items()}


def words() -> dict[str, Any]:
    """Byte-pair encoding: the first merges, a word while merges are added, lengths, a sentence as ids."""
    text = corpus()
    header, *learned = text.codes.rstrip("\n").split("\n")

    def with_merges(count: int) -> Merges:
        return Merges("\n".join([header, *learned[:count], ""]))

    long = sorted((word for word in text.counts if word.startswith("▁")), key=lambda word: (-len(word), word))
    word = next(word for word in long if 2 <= len(text.merges.subwords([word])) <= 3)
    steps: list[tuple[int, list[str]]] = []
    for count in range(1, len(learned) + 1):
        pieces = with_merges(count).subwords([word])
        if not steps or pieces != steps[-1][1]:
            steps.append((count, pieces))
    sides = Side("de", lowercase=False), Side("en", lowercase=False)
    source, target = text.texts["valid"][0]
    pieces = [text.merges.subwords(side.tokens(line)) for side, line in zip(sides, (source, target), strict=True)]
    return {
        "first": [line.split() for line in learned[:8]],
        "word": word,
        "steps": steps,
        "vocabulary": len(text.vocabulary),
        "source": source,
        "target": target,
        "pieces": pieces,
        "ids": [text.vocabulary.ids(part) for part in pieces],
    }


def mean_square_root(x: Tensor) -> float:
    """The size of a typical entry."""
    return x.double().pow(2).mean().sqrt().item()


@torch.no_grad()
def first_loss(model: Transformer) -> float:
    """The loss of a model on the validation pairs, without any training."""
    batch = corpus().pairs["valid"].batch(np.arange(40))
    states = model.eval()(torch.from_numpy(batch.source), torch.from_numpy(batch.target_input)).flatten(0, 1)
    logits = model.logits(states[torch.from_numpy(batch.places)])
    return nn.functional.cross_entropy(logits, torch.from_numpy(batch.targets)).item()


def untrained() -> dict[str, Any]:
    """What holds before any training: sizes of entries, losses, growth of states and of gradients by layer."""
    model = new_model(norm="pre")
    entry, small = mean_square_root(model.source_embedding.weight), first_loss(model)
    with torch.no_grad():
        model.source_embedding.weight *= math.sqrt(model.d_model)
    with_norm, without = (
        [first_loss(new_model(kind, norm="pre", layers=layers)) for layers in (2, 6, 12)]
        for kind in (Transformer, WithoutLastNorm)
    )
    return {
        "blind guess": math.log(len(corpus().vocabulary)),
        "entry": entry,
        "encoding": mean_square_root(model.sinusoids[:25]),
        "loss": small,
        "loss with entries of size 1": first_loss(model),
        "loss by depth": {"with the last norm": with_norm, "without": without},
        "states": {norm: sizes_by_layer(norm) for norm in ("pre", "post")},
        "gradients": {norm: gradients_by_layer(norm) for norm in ("pre", "post")},
    }


@torch.no_grad()
def sizes_by_layer(norm: str) -> list[float]:
    """The typical entry of the states after each of twelve layers of an encoder."""
    model = new_model(norm=norm, layers=12).eval()
    ids = torch.tensor([[*words()["ids"][0], 3]])
    x, sizes = model.embed(model.source_embedding, ids), []
    for layer in model.encoder:
        x = layer(x, model.source_bias(ids))
        sizes.append(mean_square_root(x))
    return sizes


def gradients_by_layer(norm: str) -> list[float]:
    """The norm of the gradient of a feed-forward matrix in each of six layers of the decoder."""
    model, batch = new_model(norm=norm, layers=6).eval(), corpus().pairs["valid"].batch(np.arange(40))
    states = model(torch.from_numpy(batch.source), torch.from_numpy(batch.target_input)).flatten(0, 1)
    targets = torch.from_numpy(batch.targets)
    loss = smoothed_cross_entropy(states[torch.from_numpy(batch.places)], model.output_weight, targets, 0.1)
    (loss / len(targets)).backward()
    return [layer.feed_forward.outer.weight.grad.norm().item() for layer in model.decoder]


def scores() -> dict[str, Any]:
    """Products of random queries and keys by the width of a head: their variance, and what a softmax makes of them."""
    seed_everything(6)
    rows = []
    for size in (4, 16, 64, 256, 1024):
        queries, keys = torch.randn(400, size), torch.randn(400, size)
        row: dict[str, float] = {"width": size}
        for name, factor in (("divided", size**-0.5), ("undivided", 1.0)):
            products = queries @ keys.T * factor
            weights = products[:, :16].softmax(-1)
            row[f"variance {name}"] = products.var().item()
            row[f"largest {name}"] = weights.amax(-1).mean().item()
            row[f"slope {name}"] = (weights * (1 - weights)).sum(-1).mean().item()
        rows.append(row)
    return {"rows": rows}


@torch.no_grad()
def masks() -> dict[str, Any]:
    """How far decoder states move when one target subword is another one, and when the source gets padding."""
    model = new_model().double().eval()
    source, target = (torch.tensor([ids]) for ids in words()["ids"])
    target = torch.cat((torch.tensor([[2]]), target), 1)[:, :12]
    changed = target.clone()
    changed[0, 6] += 1
    states = model(source, target)[0]
    padded = nn.functional.pad(source, (0, 5))
    return {
        "movement": (states - model(source, changed)[0]).abs().amax(-1).tolist(),
        "padding": (states - model(padded, target)[0]).abs().max().item(),
        "subwords": [corpus().vocabulary.subwords[number] for number in target[0].tolist()],
    }


@torch.no_grad()
def order() -> dict[str, float]:
    """How far encoder states move when the subwords of a sentence are shuffled: with and without positions."""
    ids = torch.tensor([words()["ids"][0]])
    shuffled = torch.randperm(ids.shape[1], generator=torch.Generator().manual_seed(1))
    moved = {}
    for name, kind in (("with", Transformer), ("without", NoPositions)):
        model = new_model(kind).double().eval()
        states, shuffled_states = (model.encode(x, model.source_bias(x))[0] for x in (ids, ids[:, shuffled]))
        moved[name] = (states[shuffled] - shuffled_states).abs().max().item()
    return moved


def weights() -> dict[str, Any]:
    """The number of weights of the paper's two models, by part."""
    result = {}
    for name, (d_model, d_ff, heads, published) in PAPER.items():
        with torch.device("meta"):
            model = Transformer(TransformerConfig(PAPER_VOCABULARY, 128, d_model, d_ff, heads))
        counts: Counter[str] = Counter()
        for weight_name, weight in model.named_parameters():
            kinds = {"embedding": "embeddings", "attention": "attention", "cross": "attention", "feed": "feed-forward"}
            counts[next((kind for part, kind in kinds.items() if part in weight_name), "norms")] += weight.numel()
        result[name] = {"parts": counts, "ours": counts.total(), "published": published, "width": d_model}
    return result


def padding() -> dict[str, float]:
    """The share of padding in batches of similar lengths, and in random ones."""
    pairs = corpus().pairs["train"]
    similar = global_batches(pairs, seed=1, epoch=0, batch_tokens=1024)
    at_random = np.array_split(np.random.default_rng(1).permutation(len(pairs)), len(similar))
    sides = pairs.source_lengths, pairs.target_lengths
    tokens = sum(int(side.sum()) for side in sides)

    def share(batches: list[np.ndarray]) -> float:
        return 1 - tokens / sum(len(rows) * int(side[rows].max()) for rows in batches for side in sides)

    return {"similar": share(similar), "random": share(at_random), "batches": len(similar)}


def spectrum() -> dict[str, list[float]]:
    """Singular values of a matrix in which few directions dominate, before and after `orthogonal`."""
    seed_everything(18)
    gradient = torch.randn(1, 64, 4) @ torch.randn(1, 4, 64) + 0.1 * torch.randn(1, 64, 64)
    return {
        "before": torch.linalg.svdvals(gradient[0] / torch.linalg.matrix_norm(gradient[0])).tolist(),
        "after": torch.linalg.svdvals(orthogonal(gradient)[0]).tolist(),
    }


def setup_of_all() -> dict[str, Any]:
    """The numbers of the setup that the text names."""
    counts = {"pairs": PAIRS["train"], "valid": PAIRS["valid"], "updates": UPDATES, "seeds": len(SEEDS)}
    return {**SIZES, **UPDATE, **counts}


MEASURES: dict[str, Callable[[], Any]] = {
    "setup": setup_of_all,
    "words": words,
    "untrained": untrained,
    "order": order,
    "masks": masks,
    "scores": scores,
    "weights": weights,
    "padding": padding,
    "spectrum": spectrum,
    "trainings": trainings,
}


def measure(names: list[str] | None = None) -> dict[str, Any]:
    """The results of all measurements, or of some, by name."""
    torch.set_num_threads(1)
    return {name: MEASURES[name]() for name in names or MEASURES}
