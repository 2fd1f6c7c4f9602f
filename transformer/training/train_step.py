"""The trainer: one update of the weights at a time, with the same result on any number of processes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from transformer.files import Mistake
from transformer.model.cpu import multiplies_bfloat16
from transformer.model.transformer import Transformer
from transformer.model.weights import cpu_copy
from transformer.text.pairs import Batch, Pairs
from transformer.text.vocabulary import PAD
from transformer.training.batches import Batches, deal, micro_batches, padded_tokens
from transformer.training.config import TrainConfig
from transformer.training.distributed import Stopped, World
from transformer.training.loss import smoothed_cross_entropy
from transformer.training.optimiser import Optimiser, gradients_of, learning_rate


class Update(NamedTuple):
    """The results of an update. The tensors are scalars on the device: reading them waits for the device."""

    loss: Tensor  # smoothed cross-entropy summed over the global batch, nats, float64
    tokens: int  # target tokens of the global batch
    gradient_norm: Tensor  # before clipping


class Predictions(NamedTuple):
    """The decoder states that predict a subword, and the subwords: the arguments of the losses."""

    states: Tensor  # (tokens, D)
    weight: Tensor  # output matrix (V, D)
    targets: Tensor  # ids (tokens,)


def predictions(model: Transformer, batch: Batch) -> Predictions:
    """The decoder states of a batch at all target positions that are not padding."""
    states = model(batch.source, batch.target_input).flatten(0, 1)  # (B, T, D) -> (B * T, D)
    return Predictions(states.index_select(0, batch.positions), model.output_weight, batch.targets)


class ModelWithLoss(nn.Module):
    """A batch to its smoothed loss, summed over the target tokens.

    One module, because DDP sees only what is computed in the forward pass of the module that it wraps.
    """

    def __init__(self, model: Transformer, label_smoothing: float):
        super().__init__()
        self.model, self.label_smoothing = model, label_smoothing

    def forward(self, batch: Batch) -> Tensor:
        return smoothed_cross_entropy(*predictions(self.model, batch), self.label_smoothing, PAD)


def seed_everything(*numbers: int) -> None:
    """Seed torch with integers: (seed) for initial weights, (seed, step, micro-batch) for dropout."""
    torch.manual_seed(int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1))


class Trainer:
    """Model, optimiser and data of one training: makes updates, and saves and restores their tensors.

    precision bfloat16 computes products in bfloat16 and keeps weights and sums in float32. On a device without
    instructions for bfloat16 everything is float32. Raises Mistake for a pair longer than device_tokens, or with an id
    that the model does not have.
    """

    def __init__(
        self,
        model: Transformer,
        train: Pairs,
        valid: Pairs,
        world: World | None = None,
        config: TrainConfig | None = None,
    ):
        """world: None: this process alone, on the processor. config: None: that of the paper's base model."""
        world, config = world or World(), config or TrainConfig()
        for split, pairs in (("train", train), ("valid", valid)):
            pairs.check_lengths(split, config.device_tokens)
            for ids in (pairs.source.ids, pairs.target.ids):
                if not isinstance(ids, np.memmap) and ids.max() >= model.config.vocabulary:  # on disk: made by encode
                    raise Mistake(
                        f"{split} has the id {ids.max()}, the model a vocabulary of {model.config.vocabulary}. Build "
                        f"the model with TransformerConfig({ids.max() + 1}) or more."
                    )
        self.config, self.world = config, world
        self.train_pairs, self.valid_pairs = train, valid
        self.batches = Batches(train, config.seed, config.batch_tokens)
        self.model = model.to(weight_precision(config.precision))
        in_bfloat16 = config.precision == "bfloat16" and multiplies_bfloat16(world.device)
        self.model.compute = torch.bfloat16 if in_bfloat16 else None
        self.model_with_loss = self._place_on_devices(ModelWithLoss(self.model, config.label_smoothing))
        self.parameters = list(self.model.parameters())
        self.optimiser = Optimiser(self.model, config)
        if isinstance(self.model_with_loss, DistributedDataParallel):
            # DDP orders its buckets by its first backward pass. Ordered now, they are equal in a resumed training, and
            # so is each sum, to the bit.
            with world.exchange():
                self._loss(0, 0, self.batches[1][:1]).backward()

    def _place_on_devices(self, module: ModelWithLoss) -> nn.Module:
        """The module with its weights on the devices of all processes, and compiled if the setting `compile` is on."""
        with self.world.exchange():
            module.to(self.world.device)
            if self.config.compile and self.world.device.type == "cuda":  # no gain on a CPU
                module.model.compile(dynamic=True)
            if self.world.size == 1:
                return module
            return DistributedDataParallel(module, forward_sync_buffers=False, gradient_as_bucket_view=True)

    def update(self, step: int, stop_requested: Callable[[], bool] = lambda: False) -> Update:
        """Make update `step`, counted from 1.

        stop_requested: whether this process requests a stop; called before each micro-batch. Raises Stopped in all
        processes, with the weights as they were before the update, when one requests it.
        """
        self.model_with_loss.train()
        for parameter in self.parameters:
            parameter.grad = None
        rows = self.batches[step]
        tokens = int(self.train_pairs.target_lengths[rows].sum())
        with self.world.exchange():
            loss = self._compute_gradients(step, tokens, stop_requested)
            norm = torch.nn.utils.get_total_norm(gradients_of(self.parameters))
            if self.config.clip_norm:
                torch.nn.utils.clip_grads_with_norm_(self.parameters, self.config.clip_norm, norm)
            self.optimiser.step(self.rate(step))
        return Update(loss, tokens, norm)

    def rate(self, step: int) -> float:
        """The learning rate of update `step`."""
        return learning_rate(step, self.model.d_model, self.config.warmup, self.config.lr_factor)

    def _compute_gradients(self, step: int, tokens: int, stop_requested: Callable[[], bool]) -> Tensor:
        """Compute the gradients of update `step`. Returns its loss, summed over the micro-batches of all processes.

        tokens: the target tokens of the update. All processes compute equally many micro-batches, since they exchange
        gradients in the last: one that has fewer computes one pair of the update times 0 instead. Gradients are
        averaged over processes, so the loss times their number is divided by the tokens.
        """
        parts = micro_batches(self.train_pairs, self.batches[step], self.config.device_tokens)
        dealt = deal(padded_tokens(self.train_pairs, parts), self.world.size)
        own, turns = dealt[self.world.rank], max(map(len, dealt))
        loss_sum = torch.zeros((), dtype=torch.float64, device=self.world.device)
        for turn in range(turns):
            if self.world.any(stop_requested()):
                raise Stopped
            with self._gradient_accumulation(averaged=turn == turns - 1):
                if turn < len(own):
                    loss = self._loss(step, own[turn], parts[own[turn]])
                else:
                    loss = 0 * self._loss(step, 0, parts[0][:1])
                loss_sum += loss.detach()
                (loss * self.world.size / tokens).backward()
        return self.world.sum(loss_sum)

    def _gradient_accumulation(self, averaged: bool) -> AbstractContextManager[None]:
        """Surround a micro-batch, whose gradients are added to those before; averaged: then over processes."""
        copies = self.model_with_loss
        return copies.no_sync() if isinstance(copies, DistributedDataParallel) and not averaged else nullcontext()

    def _loss(self, step: int, number: int, rows: np.ndarray) -> Tensor:
        """The smoothed loss of a micro-batch of update `step`, summed over its target tokens. rows: its pairs."""
        seed_everything(self.config.seed, step, number)
        return self.model_with_loss(self.batch(self.train_pairs, rows))

    def batch(self, pairs: Pairs, rows: np.ndarray) -> Batch:
        """Some pairs as tensors on the device. rows: the numbers of the pairs."""
        tensors = map(torch.from_numpy, pairs.batch(rows))
        if self.world.device.type == "cuda":  # copied while the device computes
            tensors = (tensor.pin_memory().to(self.world.device, non_blocking=True) for tensor in tensors)
        return Batch(*tensors)

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Copies on the CPU: the weights; the optimiser's moments."""
        return cpu_copy(self.model.state_dict()), cpu_copy(self.optimiser.tensors())

    def restore(self, weights: dict[str, Tensor], optimiser: dict[str, Tensor]) -> None:
        """Restore what `tensors` returned, on each process."""
        self.model.load_state_dict(weights)
        self.optimiser.restore(optimiser)


def weight_precision(precision: str) -> torch.dtype:
    """The precision of weights and sums in a training with this setting `precision`."""
    return torch.float64 if precision == "float64" else torch.float32
