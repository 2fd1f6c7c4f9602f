"""The trainer: one update of the weights at a time, with the same result on any number of processes."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from transformer.model.linear import multiplies_bfloat16
from transformer.model.transformer import Transformer
from transformer.model.weights import cpu_copy
from transformer.text.pairs import Pairs
from transformer.text.vocabulary import PAD
from transformer.training.batches import Batches, micro_batches
from transformer.training.config import TrainConfig
from transformer.training.distributed import World
from transformer.training.ema import copy_parameters, update_ema
from transformer.training.loss import smoothed_cross_entropy
from transformer.training.optimiser import Optimiser
from transformer.training.schedule import learning_rate

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt(3)


class Update(NamedTuple):
    """The results of an update. The tensors are scalars on the device: reading them waits for the device."""

    loss: Tensor  # smoothed cross-entropy summed over the global batch, nats, float64
    tokens: int  # target tokens of the global batch
    gradient_norm: Tensor  # before clipping
    stop: bool  # whether a process requested a stop; with several processes it arrives one update late


class Predictions(NamedTuple):
    """The decoder states that predict a subword, and the subwords: the arguments of the losses."""

    states: Tensor  # (tokens, D)
    weight: Tensor  # output matrix (V, D)
    targets: Tensor  # ids (tokens,)


def seed_everything(*numbers: int) -> None:
    """Seed torch with whole numbers: (seed) for initial weights, (seed, step, micro-batch) for dropout."""
    torch.manual_seed(int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1))


def keep_freed_memory() -> None:
    """Make glibc keep the memory that this process frees, for the next batch. Other C libraries are not changed.

    By default glibc returns large blocks to the kernel and gets them back page by page, which takes 6 to 9% of a small
    model's training on two cores. Keeping them does not make the process grow: batches of one size need equal memory.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(M_MMAP_THRESHOLD, 32 << 20)  # the largest value that all versions accept
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


class Trainer:
    """Model, optimiser and data of one training: makes updates, and saves and restores their tensors.

    precision bfloat16 computes products in bfloat16 and keeps weights and sums in float32. On a device without
    instructions for bfloat16 everything is float32. Two settings of the process are changed: freed memory is kept, and
    attention does not use cuDNN. Raises ValueError for a pair longer than device_tokens.
    """

    def __init__(self, model: Transformer, train: Pairs, valid: Pairs, world: World, config: TrainConfig):
        for split, pairs in (("train", train), ("valid", valid)):
            pairs.check_lengths(split, config.device_tokens)
        keep_freed_memory()
        torch.backends.cuda.enable_cudnn_sdp(False)  # it plans each new shape, so nearly each batch, for 20 to 40 ms
        self.config, self.world = config, world
        self.model = model.to(world.device, weight_precision(config.precision))
        in_bfloat16 = config.precision == "bfloat16" and multiplies_bfloat16(world.device)
        self.model.compute = torch.bfloat16 if in_bfloat16 else None
        compiles = config.compile and world.device.type == "cuda"  # on a CPU it is not faster
        self.decoder_states = torch.compile(self.model, dynamic=True) if compiles else self.model
        self.train_pairs, self.valid_pairs = train, valid
        self.batches = Batches(train, config.seed, config.batch_tokens)
        self.parameters = list(self.model.parameters())
        self.ema = copy_parameters(self.model) if config.ema_decay else {}
        self.optimiser = Optimiser(self.model, config)
        self._stop_flag = torch.zeros(())  # above 0: a process requested a stop before the last update
        self._stop_copied: torch.Event | None = None  # on a GPU: recorded when the flag is copied to the host

    def update(self, step: int, stop: bool = False) -> Update:
        """Make update `step`, counted from 1. stop: whether this process requests that all processes stop."""
        self.model.train()
        rows = self.batches[step]
        tokens = int(self.train_pairs.target_lengths[rows].sum())
        loss_sum = torch.zeros((), dtype=torch.float64, device=self.world.device)
        for parameter in self.parameters:
            parameter.grad = None
        for number, part in enumerate(micro_batches(self.train_pairs, rows, self.config.device_tokens)):
            if number % self.world.size == self.world.rank:
                seed_everything(self.config.seed, step, number)
                loss = smoothed_cross_entropy(
                    *self.states_to_predict(self.train_pairs, part), self.config.label_smoothing, PAD
                )
                (loss / tokens).backward()
                loss_sum += loss.detach()
        loss_sum, stop = self._reduce(loss_sum, stop)
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.parameters if p.grad is not None])
        if self.config.clip_norm:
            torch.nn.utils.clip_grads_with_norm_(self.parameters, self.config.clip_norm, norm)
        self.optimiser.step(self.rate(step))
        update_ema(self.ema, self.model, self.config.ema_decay, step)
        return Update(loss_sum, tokens, norm, stop)

    def rate(self, step: int) -> float:
        """The learning rate of update `step`."""
        return learning_rate(step, self.model.d_model, self.config.warmup, self.config.lr_factor)

    def _reduce(self, loss_sum: Tensor, stop: bool) -> tuple[Tensor, bool]:
        """Sum gradients, loss and stop flag over all processes, in one message. Returns the loss and the stop flag.

        The stop flag arrives one update late: on a GPU it is copied asynchronously, and only that copy is waited for.
        """
        if self.world.size == 1:
            return loss_sum, stop
        dtype = self.parameters[0].dtype
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        extras = torch.stack([loss_sum.to(dtype), torch.full_like(loss_sum, float(stop), dtype=dtype)])
        flat = self.world.sum(torch.cat([*(gradient.flatten() for gradient in gradients), extras]))
        sizes = [gradient.numel() for gradient in gradients]
        for parameter, part in zip(self.parameters, flat[:-2].split(sizes), strict=True):
            parameter.grad = part.view_as(parameter)
        if self._stop_copied is not None:
            self._stop_copied.synchronize()
        stopped, self._stop_flag = bool(self._stop_flag), flat[-1].to("cpu", non_blocking=True, copy=True)
        self._stop_copied = torch.cuda.current_stream().record_event() if flat.is_cuda else None
        return flat[-2].double(), stopped

    def states_to_predict(self, pairs: Pairs, rows: np.ndarray) -> Predictions:
        """The decoder states of some pairs at all target positions that are not padding. rows: numbers of the pairs."""
        parts = tuple(map(torch.from_numpy, pairs.batch(rows)))
        if self.world.device.type == "cuda":  # copied while the device computes
            parts = tuple(part.pin_memory().to(self.world.device, non_blocking=True) for part in parts)
        source, target_input, places, targets = parts
        states = self.decoder_states(source, target_input)
        states = states.flatten(0, 1).index_select(0, places)  # (B, T, D) -> (tokens, D)
        return Predictions(states, self.model.output_weight, targets)

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Copies on the CPU: the weights; the optimiser's moments, with the moving average of the weights if any."""
        optimiser = self.optimiser.tensors() | {f"ema.{name}": value for name, value in self.ema.items()}
        return cpu_copy(self.model.state_dict()), cpu_copy(optimiser)

    def restore(self, weights: dict[str, Tensor], optimiser: dict[str, Tensor], step: int) -> None:
        """Restore the tensors that `tensors` returned after update `step`."""
        self.model.load_state_dict(weights)
        self.optimiser.restore(optimiser, step)
        for name, value in self.ema.items():
            value.copy_(optimiser[f"ema.{name}"])


def weight_precision(precision: str) -> torch.dtype:
    """The precision of weights and sums in a training with this setting `precision`."""
    return torch.float64 if precision == "float64" else torch.float32
