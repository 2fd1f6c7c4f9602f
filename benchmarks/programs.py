"""What trains in the benchmark: this project's trainer, and a model of torch's own layers, on the same batches."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer.model.config import TransformerConfig
from transformer.model.transformer import Transformer, sinusoids
from transformer.text.pairs import Pairs
from transformer.text.vocabulary import PAD
from transformer.training.batches import Batches
from transformer.training.config import Precision, TrainConfig
from transformer.training.distributed import World
from transformer.training.train_step import Trainer, seed_everything

SMOOTHING = DROPOUT = 0.1  # of every program
Update = Callable[[int], object]  # makes an update, by its number from 1


@dataclass(frozen=True)
class Size:
    """The size of a model: D, width inside the feed-forward layers, H, encoder layers (= decoder layers)."""

    d_model: int
    d_ff: int
    heads: int
    layers: int


SIZES = {"tiny": Size(128, 256, 4, 4), "base": Size(512, 2048, 8, 6), "big": Size(1024, 4096, 16, 6)}

SEED, WARMUP, CLIP_NORM, BETAS, EPSILON = 1, 800, 1.0, (0.9, 0.98), 1e-9


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
    def batches(self) -> Batches:
        """The pairs of each update."""
        return Batches(self.pairs, SEED, self.batch_tokens)


def synchronise(device: torch.device) -> None:
    """Wait until a GPU has finished all work that was started."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def train_config(batch_tokens: int, warmup: int, precision: Precision, compile: bool = False) -> TrainConfig:
    """The settings of a training by this project's trainer, one micro-batch an update."""
    return TrainConfig(
        seed=SEED,
        batch_tokens=batch_tokens,
        device_tokens=batch_tokens,
        max_steps=1,
        log_every=1,
        save_every=1,
        keep=1,
        warmup=warmup,
        adam_beta1=BETAS[0],
        adam_beta2=BETAS[1],
        adam_epsilon=EPSILON,
        clip_norm=CLIP_NORM,
        label_smoothing=SMOOTHING,
        precision=precision,
        compile=compile,
    )


def ours(task: Task, compile: bool = False) -> Update:
    """The updates of this project's trainer, as the stage train calls it."""
    seed_everything(SEED)
    rates = dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), DROPOUT)
    sizes = {**vars(task.size), **rates, "max_positions": int(task.pairs.longest.max()) + 1}
    model = Transformer(TransformerConfig(task.vocabulary, **sizes, norm="pre"))
    config = train_config(task.batch_tokens, WARMUP, task.precision, compile)
    return Trainer(model, task.pairs, task.pairs, World(device=task.device), config).update


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


def torch_layers(task: Task) -> Update:
    """The updates of a trainer made of torch's own layers, loss, Adam and autocast."""
    seed_everything(SEED)
    longest, batches = int(task.pairs.longest.max()) + 1, task.batches
    model = TorchTransformer(task.size, task.vocabulary, longest).to(task.device).train()
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-4, betas=BETAS, eps=EPSILON)
    reduced = task.precision != "float32"
    autocast = torch.autocast(task.device.type, getattr(torch, task.precision) if reduced else None, enabled=reduced)

    def update(step: int) -> None:
        source, target, places, targets = map(torch.from_numpy, task.pairs.batch(batches[step]))
        output = torch.full_like(target, PAD)  # (B, T)
        output.view(-1)[places] = targets
        source, target, output = (part.to(task.device, non_blocking=True) for part in (source, target, output))
        optimiser.zero_grad()
        with autocast:
            scores = model(source, target)
            loss = F.cross_entropy(scores.flatten(0, 1), output.flatten(), ignore_index=PAD, label_smoothing=SMOOTHING)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimiser.step()

    return update
