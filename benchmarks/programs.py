"""Programs that train: this project's trainer, and a model of torch's own layers.

The class of all programs and the task that all of them get are here too.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from argparse import ArgumentParser
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer.model.config import TransformerConfig
from transformer.model.transformer import Transformer, sinusoids
from transformer.text.pairs import Pairs
from transformer.text.vocabulary import PAD
from transformer.training.batches import Batches
from transformer.training.config import Precision, TrainConfig
from transformer.training.distributed import World, prepare_process
from transformer.training.train_step import Trainer, seed_everything

SMOOTHING = DROPOUT = 0.1  # of every program


@dataclass(frozen=True)
class Size:
    """The size of a model: D, width inside the feed-forward layers, H, encoder layers (= decoder layers)."""

    d_model: int
    d_ff: int
    heads: int
    layers: int


SIZES = {"tiny": Size(128, 256, 4, 4), "base": Size(512, 2048, 8, 6), "big": Size(1024, 4096, 16, 6)}

SEED, WARMUP, CLIP_NORM, BETAS, EPSILON = 1, 800, 1.0, (0.9, 0.98), 1e-9


class Padded(NamedTuple):
    """A padded batch of ids: source (B, S), target input (B, T), target output (B, T)."""

    source: Tensor
    target_input: Tensor
    target_output: Tensor


@dataclass(frozen=True)
class Task:
    """What a program trains: sizes, pairs, batches, precision and device."""

    size: Size
    vocabulary: int
    pairs: Pairs
    batch_tokens: int
    precision: Precision
    device: torch.device

    @property
    def autocast(self) -> AbstractContextManager:
        """torch.autocast to the precision; disabled for float32."""
        reduced = self.precision != "float32"
        return torch.autocast(self.device.type, getattr(torch, self.precision) if reduced else None, enabled=reduced)

    def batch(self, rows: np.ndarray) -> Padded:
        """The pairs with the numbers `rows`, on the device."""
        source, target, places, targets = map(torch.from_numpy, self.pairs.batch(rows))
        output = torch.full_like(target, PAD)
        output.view(-1)[places] = targets
        return Padded(*(part.to(self.device, non_blocking=True) for part in (source, target, output)))


def add_data_options(parser: ArgumentParser) -> None:
    """Add the options that name the pairs of a task, and the size of its batches."""
    add = parser.add_argument
    add("--ids", type=Path, default=Path("data/ids"), metavar="PATH", help="id arrays as the stage encode writes them")
    add("--vocab", type=Path, default=Path("data/vocab.txt"), metavar="PATH", help="their vocabulary")
    add("--batch-tokens", type=int, default=4096, metavar="N", help="sentences x longest side of an update")


def synchronise(device: torch.device) -> None:
    """Wait until a GPU has finished all work that was started."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Program(ABC):
    """A program that makes one update after another on the batches of a task."""

    def __init__(self, task: Task):
        self.task = task
        self.batches = Batches(task.pairs, SEED, task.batch_tokens)

    def rows(self, step: int) -> np.ndarray:
        """The pairs of update `step`, counted from 1."""
        return self.batches[step]

    @abstractmethod
    def update(self, step: int) -> None:
        """Make update `step`."""


def train_config(batch_tokens: int, warmup: int, precision: Precision, compile: bool = False) -> TrainConfig:
    """The settings of a training by this project's trainer, one micro-batch an update."""
    return TrainConfig(
        seed=SEED,
        batch_tokens=batch_tokens,
        device_tokens=batch_tokens,
        max_steps=1,
        warmup=warmup,
        lr_factor=1.0,
        optimiser="adam",
        muon_factor=2.0,
        adam_beta1=BETAS[0],
        adam_beta2=BETAS[1],
        adam_epsilon=EPSILON,
        clip_norm=CLIP_NORM,
        label_smoothing=SMOOTHING,
        precision=precision,
        deterministic=False,
        compile=compile,
        log_every=1,
        save_every=1,
        keep=1,
        patience=0,
        best_by="loss",
    )


class Ours(Program):
    """This project's trainer, as the stage train calls it."""

    compile = False

    def __init__(self, task: Task):
        super().__init__(task)
        seed_everything(SEED)
        model = Transformer(
            TransformerConfig(
                **vars(task.size),
                vocabulary=task.vocabulary,
                dropout=DROPOUT,
                attention_dropout=DROPOUT,
                activation_dropout=DROPOUT,
                norm="pre",
                positions="sinusoidal",
                tie_embeddings=True,
                max_positions=int(task.pairs.longest.max()) + 1,
            )
        )
        config = train_config(task.batch_tokens, WARMUP, task.precision, self.compile)
        prepare_process()
        self.trainer = Trainer(model, task.pairs, task.pairs, World(device=task.device), config)
        self.batches = self.trainer.batches

    def update(self, step: int) -> None:
        self.trainer.update(step)


class Compiled(Ours):
    """This project's trainer with `compile: true`, which has an effect on a GPU only."""

    compile = True


class TorchTransformer(nn.Module):
    """nn.Transformer with sinusoidal positions and one matrix for source, target and output."""

    def __init__(self, size: Size, vocabulary: int, longest: int):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, size.d_model, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=size.d_model**-0.5)
        self.register_buffer("positions", sinusoids(longest, size.d_model).float())
        self.dropout = nn.Dropout(DROPOUT)
        self.transformer = nn.Transformer(
            size.d_model, size.heads, size.layers, size.layers, size.d_ff, DROPOUT, batch_first=True, norm_first=True
        )

    def embed(self, ids: Tensor) -> Tensor:
        """Embed ids: (B, T) -> (B, T, D)."""
        x = self.embedding(ids) * math.sqrt(self.embedding.embedding_dim)
        return self.dropout(x + self.get_buffer("positions")[: ids.shape[1]])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Scores (B, T, V) for source (B, S) and target (B, T)."""
        length, padding = target.shape[1], source == PAD
        later = torch.ones(length, length, dtype=torch.bool, device=target.device).triu(1)
        states = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=later,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return F.linear(states, self.embedding.weight)


class TorchBaseline(Program):
    """A trainer made of torch's own layers, loss, Adam and autocast."""

    def __init__(self, task: Task):
        super().__init__(task)
        seed_everything(SEED)
        longest = int(task.pairs.longest.max()) + 1
        self.model = TorchTransformer(task.size, task.vocabulary, longest).to(task.device).train()
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=3e-4, betas=BETAS, eps=EPSILON)

    def update(self, step: int) -> None:
        source, target, output = self.task.batch(self.rows(step))
        self.optimiser.zero_grad()
        with self.task.autocast:
            scores = self.model(source, target)
            loss = F.cross_entropy(scores.flatten(0, 1), output.flatten(), ignore_index=PAD, label_smoothing=SMOOTHING)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP_NORM)
        self.optimiser.step()
