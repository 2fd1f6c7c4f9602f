"""The measurements of the walkthrough: the trainings, and what can be computed without any.

python -m pipeline walkthrough --measure     # all, in about half an hour on two cores: docs/walkthrough.json
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from docs.make.trainings import (
    LONG,
    PAIRS,
    SEEDS,
    SIZES,
    UPDATE,
    UPDATES,
    NoPositions,
    WithoutLastNorm,
    corpus,
    longer,
    new_model,
    trainings,
)
from transformer.model.config import TransformerConfig
from transformer.model.transformer import Transformer
from transformer.text.bpe import Merges
from transformer.text.words import Side
from transformer.training.batches import global_batches
from transformer.training.loss import smoothed_cross_entropy
from transformer.training.optimiser import orthogonal
from transformer.training.train_step import seed_everything

PAPER = {  # table 3: width, inner width, heads, published number of weights
    "base": (512, 2048, 8, 65_000_000),
    "big": (1024, 4096, 16, 213_000_000),
}
PAPER_VOCABULARY = 37_000  # section 5.1


def words() -> dict[str, Any]:
    """Byte-pair encoding: a word while merges are added, the size of the vocabulary, a pair of sentences as ids."""
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
        "word": word,
        "steps": steps,
        "vocabulary": len(text.vocabulary),
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
    seeds = SEEDS[:3]
    models = [new_model(seed=seed) for seed in seeds]
    entry, losses = mean_square_root(models[0].source_embedding.weight), [first_loss(model) for model in models]
    with torch.no_grad():
        for model in models:
            model.source_embedding.weight *= math.sqrt(model.d_model)
    gradients = {norm: [gradients_by_layer(norm, seed) for seed in seeds] for norm in ("pre", "post")}
    with_norm, without = (
        [first_loss(new_model(kind, norm="pre", layers=layers)) for layers in (2, 6, 12)]
        for kind in (Transformer, WithoutLastNorm)
    )
    return {
        "blind guess": math.log(len(corpus().vocabulary)),
        "entry": entry,
        "encoding": mean_square_root(models[0].sinusoids[:25]),
        "loss": losses,
        "loss with entries of size 1": [first_loss(model) for model in models],
        "loss by depth": {"with the last norm": with_norm, "without": without},
        "states": {norm: sizes_by_layer(norm) for norm in ("pre", "post")},
        "gradients": {norm: of_seeds[0] for norm, of_seeds in gradients.items()},
        "gradient factor": {norm: [by[0] / by[-1] for by in of_seeds] for norm, of_seeds in gradients.items()},
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


def gradients_by_layer(norm: str, seed: int) -> list[float]:
    """The norm of the gradient of a feed-forward matrix in each of six layers of the decoder."""
    model, batch = new_model(seed=seed, norm=norm, layers=6).eval(), corpus().pairs["valid"].batch(np.arange(40))
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
        result[name] = {"parts": counts, "ours": counts.total(), "published": published}
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

    return {"similar": share(similar), "random": share(at_random)}


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
    counts = {
        "pairs": PAIRS["train"],
        "valid": PAIRS["valid"],
        "updates": UPDATES,
        "long_updates": LONG,
        "seeds": len(SEEDS),
    }
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
    "longer": longer,
}


def measure(names: list[str] | None = None) -> dict[str, Any]:
    """The results of all measurements, or of some, by name."""
    torch.set_num_threads(1)
    return {name: MEASURES[name]() for name in names or MEASURES}
