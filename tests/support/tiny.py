"""A tiny model, tiny data, a trainer of that model, a model folder, and a function that runs a stage."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from support.forks import CAN_FORK, forked, run_stage

from transformer.inference.save_model import save_model
from transformer.model.config import TransformerConfig
from transformer.model.transformer import Transformer
from transformer.text.bpe import Merges, learn_merges
from transformer.text.pairs import Pairs
from transformer.text.vocabulary import BOS, EOS, PAD, Vocabulary
from transformer.text.words import Side
from transformer.training.config import TrainConfig
from transformer.training.distributed import World
from transformer.training.train_step import Trainer, seed_everything

ROOT = Path(__file__).parents[2]


SIZES = {
    "vocabulary": 23,
    "d_model": 16,
    "d_ff": 32,
    "heads": 2,
    "key_size": 0,
    "layers": 2,
    "encoder_layers": 0,
    "decoder_layers": 0,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "activation_dropout": 0.1,
    "norm": "pre",
    "positions": "sinusoidal",
    "tie_embeddings": True,
    "max_positions": 40,
}


NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}


# All else is as in the paper's base model
UPDATE = {
    "seed": 3,
    "batch_tokens": 120,
    "device_tokens": 48,
    "warmup": 20,
    "clip_norm": 1.0,
    "max_steps": 12,
    "log_every": 2,
    "save_every": 4,
    "keep": 2,
}


def tiny_model(**changes) -> Transformer:
    """A small Transformer with the same random weights at each call. changes: to SIZES and NO_DROPOUT."""
    seed_everything(7)
    return Transformer(TransformerConfig(**{**SIZES, **NO_DROPOUT, **changes})).eval()


def target_of(source: list[int]) -> list[int]:
    """The target of a source in `random_pairs`: reversed, and shorter or longer, so that the sides differ in length."""
    return source[:0:-1] if len(source) > 4 else source[::-1] * 2


def random_pairs(folder: Path, count: int = 60, seed: int = 0, longest: int = 12) -> Pairs:
    """Random pairs on disk, as the stage encode writes them; see `target_of`."""
    chance = np.random.default_rng(seed)
    lines = [chance.integers(4, SIZES["vocabulary"], chance.integers(1, longest)).tolist() for _ in range(count)]
    folder.mkdir(parents=True, exist_ok=True)
    rows = ((line, target_of(line), number) for number, line in enumerate(lines, start=1))
    Pairs.save_rows(folder, "train", rows, SIZES["vocabulary"])
    return Pairs.load(folder, "train")


def tiny_trainer(folder: Path, world: World | None = None, sizes: dict | None = None, **update) -> Trainer:
    """A trainer on random pairs, with dropout. sizes: changes to SIZES. update: changes to UPDATE."""
    train, valid = random_pairs(folder / "train"), random_pairs(folder / "valid", 9, seed=1)
    seed_everything(3)
    model = Transformer(TransformerConfig(**{**SIZES, **(sizes or {})}))
    return Trainer(model, train, valid, world or World(), TrainConfig(**{**UPDATE, **update}))


def stage(name: str, folder: Path, *options: str, env: dict | None = None) -> subprocess.CompletedProcess[str]:
    """Run a stage in `folder`, as `dvc repro` does. env: additions to the environment.

    A stage that trains has a process of its own: it may start others. So has a stage
    in a copy of this project, whose code it runs.
    """
    place = {"PYTHONPATH": str(ROOT), "MLFLOW_TRACKING_URI": "", "DVC_ROOT": ""}
    variables = {**os.environ, **place, **(env or {})}
    if not CAN_FORK or name in ("train", "back_translate") or (folder / "pipeline").exists():
        words = [sys.executable, "-m", f"pipeline.{name}", *options]
        return subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True)
    return forked(run_stage, [name, *options], folder, variables)


def make_ends_likely(model: Transformer, pull: float) -> None:
    """Raise the probability of </s> in a random model, so that some translations end before their limit.

    pull: length of the vector that is added to the output weights of </s>; 0 adds nothing.
    """
    last = (
        model.decoder_norm
        if isinstance(model.decoder_norm, torch.nn.LayerNorm)
        else model.decoder[-1].residuals[-1].norm
    )
    with torch.no_grad():
        model.output_weight[EOS] += pull * last.bias / last.bias.norm()


TEXT = ("Ein Hund rennt im Gras .", "Zwei Männer spielen Schach .", "Ein Mann und zwei Hunde .")


def model_folder(
    folder: Path, merges: int = 40, seed: int = 7, spread: float = 0.3, pull: float = 0.5, **changes
) -> Path:
    """A model folder as the stage average writes it, with merges and vocabulary of TEXT and random weights.

    spread: standard deviation of the noise that is added to the weights, so that the model has clear preferences.
    pull: see make_ends_likely. changes: to SIZES.
    """
    german = Side("de", lowercase=False)
    counts = Counter(token for line in TEXT for token in german.tokens(line))
    codes = learn_merges(counts, merges)
    subwords = Counter(subword for word in counts.elements() for subword in Merges(codes).subwords([word]))
    vocabulary = Vocabulary.build(subwords, 1)
    sizes = {**SIZES, **NO_DROPOUT, "vocabulary": len(vocabulary), **changes}
    seed_everything(seed)
    model = Transformer(TransformerConfig(**sizes))
    with torch.no_grad():
        for weight in model.parameters():
            weight += spread * torch.randn_like(weight)
        # make the probability of <pad> and <s> almost 0, as in a trained model
        last = model.decoder_norm if sizes["norm"] == "pre" else model.decoder[-1].residuals[-1].norm
        last.bias.fill_(2.0)
        model.output_weight[[PAD, BOS]] = -2.0
    make_ends_likely(model, pull)
    save_model(folder, model, Merges(codes), vocabulary, german, Side("en", lowercase=False))
    return folder
