"""The trainer: one update of the weights at a time, with the same result on any number of processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from transformer.model.cpu import multiplies_bfloat16
from transformer.model.transformer import Transformer
from transformer.text.pairs import Pairs
from transformer.text.vocabulary import PAD
from transformer.training.batches import Batches, deal, micro_batches, padded_tokens
from transformer.training.config import TrainConfig
from transformer.training.distributed import Stopped, World
from transformer.training.ema import copy_parameters, update_ema
from transformer.training.gradients import GradientSum
from transformer.training.loss import smoothed_cross_entropy
from transformer.training.optimiser import Optimiser
from transformer.training.schedule import learning_rate
from transformer.training.sharding import own_shard, shard, whole, whole_copies, whole_model


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


def seed_everything(*numbers: int) -> None:
    """Seed torch with whole numbers: (seed) for initial weights, (seed, step, micro-batch) for dropout."""
    torch.manual_seed(int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1))


class Trainer:
    """Model, optimiser and data of one training: makes updates, and saves and restores their tensors.

    precision bfloat16 computes products in bfloat16 and keeps weights and sums in float32. On a device without
    instructions for bfloat16 everything is float32. sharded: each process of several holds a share of weights,
    gradients and moments; see sharding.py. Raises ValueError for a pair longer than device_tokens.
    """

    def __init__(
        self, model: Transformer, train: Pairs, valid: Pairs, world: World, config: TrainConfig, sharded: bool = False
    ):
        for split, pairs in (("train", train), ("valid", valid)):
            pairs.check_lengths(split, config.device_tokens)
        self.config, self.world, self.sharded = config, world, sharded
        self.model = model.to(weight_precision(config.precision))
        if self.sharded:
            shard(self.model, world, config.gradient_compression)
        else:
            self.model.to(world.device)
        in_bfloat16 = config.precision == "bfloat16" and multiplies_bfloat16(world.device)
        self.model.compute = torch.bfloat16 if in_bfloat16 else None
        # On a CPU it is not faster. With shards it is not tested: a trial with gloo did not end in four minutes.
        compiles = config.compile and world.device.type == "cuda" and not sharded
        self.decoder_states = torch.compile(self.model, dynamic=True) if compiles else self.model
        self.train_pairs, self.valid_pairs = train, valid
        self.batches = Batches(train, config.seed, config.batch_tokens)
        self.parameters = list(self.model.parameters())
        self.ema = copy_parameters(self.model) if config.ema_decay else {}
        self.optimiser = Optimiser(self.model, config)
        # FSDP sums gradients in shards; then only the loss is summed here
        self.gradients = GradientSum([] if self.sharded else self.parameters, world, config.gradient_compression)
        self._stop_flag = torch.zeros(())  # above 0: a process requested a stop in the last update
        self._stop_copied: torch.Event | None = None  # on a GPU: recorded when the flag is copied to the host

    def update(self, step: int, stop_requested: Callable[[], bool] = lambda: False) -> Update:
        """Make update `step`, counted from 1.

        stop_requested: whether this process requests a stop; called before each micro-batch. Raises Stopped in all
        processes, with the weights as they were before the update, when one requests it; see `_add_gradients`.
        """
        self.model.train()
        tokens = int(self.train_pairs.target_lengths[self.batches[step]].sum())
        for parameter in self.parameters:
            parameter.grad = None
        with self.world.exchange():
            loss_sum = self._add_gradients(step, tokens, stop_requested)
            norm = whole(torch.nn.utils.get_total_norm([p.grad for p in self.parameters if p.grad is not None]))
            if self.config.clip_norm:
                torch.nn.utils.clip_grads_with_norm_(self.parameters, self.config.clip_norm, norm)
            self.optimiser.step(self.rate(step))
        update_ema(self.ema, self.model, self.config.ema_decay, step)
        return Update(loss_sum, tokens, norm)

    def rate(self, step: int) -> float:
        """The learning rate of update `step`."""
        return learning_rate(step, self.model.d_model, self.config.warmup, self.config.lr_factor)

    def _add_gradients(self, step: int, tokens: int, stop_requested: Callable[[], bool]) -> Tensor:
        """Compute the gradients of update `step`. Returns the loss, summed over the micro-batches of all processes.

        tokens: the target tokens of the update, which divide the loss. Raises Stopped; see `update`.
        """
        parts = micro_batches(self.train_pairs, self.batches[step], self.config.device_tokens)
        dealt = deal(padded_tokens(self.train_pairs, parts), self.world.size)
        # On a GPU, the host waits when it reads a flag that was just summed. If no process has more than one
        # micro-batch, an update is short: then this update is computed, and the flag of the one before is read.
        at_once = self.world.device.type == "cpu" or len(parts) > self.world.size
        if self.sharded:
            self._compute_in_step(step, tokens, parts, dealt, stop_requested)
        else:
            self._compute(step, tokens, parts, dealt, at_once, stop_requested)
        loss_sum, flag = self.gradients.finish()
        if self.world.size > 1 and self._stops(flag, at_once):
            raise Stopped
        return loss_sum

    def _compute(
        self,
        step: int,
        tokens: int,
        parts: Sequence[np.ndarray],
        dealt: Sequence[Sequence[int]],
        at_once: bool,
        stop_requested: Callable[[], bool],
    ) -> None:
        """Compute the micro-batches of this process. parts: the pairs of each micro-batch. dealt: see `deal`."""
        own = dealt[self.world.rank]
        loss_sum = torch.zeros((), dtype=torch.float64, device=self.world.device)
        stop = False
        for number in own:
            stop = stop or stop_requested()
            if stop and self.world.size == 1:
                raise Stopped
            if stop and at_once:
                break
            loss = self._loss(step, number, parts[number])
            loss_sum += loss.detach()
            if number == own[-1]:
                self.gradients.begin(loss_sum, stop)
            (loss / tokens).backward()
        if (stop and at_once) or not own:
            self.gradients.begin(loss_sum, stop or stop_requested())

    def _compute_in_step(
        self,
        step: int,
        tokens: int,
        parts: Sequence[np.ndarray],
        dealt: Sequence[Sequence[int]],
        stop_requested: Callable[[], bool],
    ) -> None:
        """Compute the micro-batches of this process, when weights are in shards. Arguments: see `_compute`.

        All processes compute equally many, since they exchange weights and gradients in each. One that has fewer
        computes one pair of the update instead, times 0. A request to stop is therefore obeyed after the last one.
        """
        own = dealt[self.world.rank]
        loss_sum = torch.zeros((), dtype=torch.float64, device=self.world.device)
        stop = False
        for turn in range(max(map(len, dealt))):
            stop = stop or stop_requested()
            if turn < len(own):
                loss = self._loss(step, own[turn], parts[own[turn]])
            else:
                loss = 0 * self._loss(step, 0, parts[0][:1])
            loss_sum += loss.detach()
            (loss / tokens).backward()
        self.gradients.begin(loss_sum, stop)

    def _loss(self, step: int, number: int, rows: np.ndarray) -> Tensor:
        """The smoothed loss of a micro-batch of update `step`, summed over its target tokens. rows: its pairs."""
        seed_everything(self.config.seed, step, number)
        predictions = self.states_to_predict(self.train_pairs, rows)
        return smoothed_cross_entropy(*predictions, self.config.label_smoothing, PAD)

    def _stops(self, flag: Tensor, at_once: bool) -> bool:
        """Whether this update is given up: whether the flag of this update (at_once) or of the one before is set."""
        before, copied = self._stop_flag, self._stop_copied
        self._stop_flag = flag.to("cpu", non_blocking=not at_once, copy=True)
        self._stop_copied = torch.cuda.current_stream().record_event() if flag.is_cuda and not at_once else None
        if at_once:
            return bool(self._stop_flag)
        if copied is not None:
            copied.synchronize()
        return bool(before)

    def states_to_predict(self, pairs: Pairs, rows: np.ndarray) -> Predictions:
        """The decoder states of some pairs at all target positions that are not padding. rows: numbers of the pairs."""
        parts = tuple(map(torch.from_numpy, pairs.batch(rows)))
        if self.world.device.type == "cuda":  # copied while the device computes
            parts = tuple(part.pin_memory().to(self.world.device, non_blocking=True) for part in parts)
        source, target_input, places, targets = parts
        states = self.decoder_states(source, target_input)
        states = states.flatten(0, 1).index_select(0, places)  # (B, T, D) -> (tokens, D)
        return Predictions(states, self.model.output_weight, targets)

    @contextmanager
    def whole_weights(self) -> Iterator[None]:
        """Surround a validation: within the block, `model` has whole weights. All processes must call this.

        Nothing happens if the weights are not in shards.
        """
        model, decoder_states = self.model, self.decoder_states
        if self.sharded:
            with self.world.exchange():
                self.model = self.decoder_states = whole_model(model)
        try:
            yield
        finally:
            self.model, self.decoder_states = model, decoder_states

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Copies on the CPU: the weights; the optimiser's moments, with the moving average of the weights if any.

        Whole tensors on the leader, nothing on the other processes. All processes must call this.
        """
        optimiser = self.optimiser.tensors() | {f"ema.{name}": value for name, value in self.ema.items()}
        with self.world.exchange():
            return whole_copies(self.model.state_dict(), self.world), whole_copies(optimiser, self.world)

    def restore(self, weights: dict[str, Tensor], optimiser: dict[str, Tensor], step: int) -> None:
        """Restore the tensors that `tensors` returned after update `step`. All processes pass the whole tensors."""
        own = {name: own_shard(weights[name], like=value) for name, value in self.model.state_dict().items()}
        self.model.load_state_dict(own)
        self.optimiser.restore(optimiser, step)
        for name, value in self.ema.items():
            value.copy_(own_shard(optimiser[f"ema.{name}"], like=value))


def weight_precision(precision: str) -> torch.dtype:
    """The precision of weights and sums in a training with this setting `precision`."""
    return torch.float64 if precision == "float64" else torch.float32
