"""One update after another, the same on any number of processes."""

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
from transformer.training.ema import copy_parameters, follow
from transformer.training.loss import smoothed_cross_entropy
from transformer.training.optimiser import Optimiser
from transformer.training.schedule import learning_rate

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt(3)


class Update(NamedTuple):
    """What an update says of itself. The tensors are scalars on the device: reading them waits for it."""

    loss: Tensor  # smoothed cross-entropy summed over the global batch, nats, float64
    tokens: int  # target tokens of the global batch
    gradient_norm: Tensor  # before clipping
    stop: bool  # whether any process wants to stop; of several, told one update later


def seed_everything(*numbers: int) -> None:
    """Seed torch from whole numbers: initial weights from (seed), dropout from (seed, step, micro-batch)."""
    torch.manual_seed(int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1))


def keep_freed_memory() -> None:
    """From now on glibc keeps what this process frees, for the next batch; other C libraries do as they did.

    By default it hands large blocks back to the kernel and gets them again page by page, which takes 6 to 9% of a small
    model's training on two cores. The process need not grow for it: batches of one size need the same memory.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(M_MMAP_THRESHOLD, 32 << 20)  # the largest value that all versions take
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


class Trainer:
    """Model, optimiser and data of one training: makes one update, validates, and turns itself into tensors.

    In bfloat16 weights and sums are float32; so is all, where the device has no instructions for bfloat16. The process
    keeps the memory that a batch frees, and its attention goes without cuDNN. Raises ValueError for a pair longer than
    device_tokens.
    """

    def __init__(self, model: Transformer, train: Pairs, valid: Pairs, world: World, config: TrainConfig):
        for split, pairs in (("train", train), ("valid", valid)):
            pairs.check_lengths(split, config.device_tokens)
        keep_freed_memory()
        torch.backends.cuda.enable_cudnn_sdp(False)  # it plans for 20 to 40 ms at each new shape: at nearly each batch
        self.config, self.world = config, world
        self.model = model.to(world.device, wide(config.precision))
        rounds = config.precision == "bfloat16" and multiplies_bfloat16(world.device)
        self.model.compute = torch.bfloat16 if rounds else None
        compiles = config.compile and world.device.type == "cuda"  # for a CPU it makes nothing faster
        self.states = torch.compile(self.model, dynamic=True) if compiles else self.model
        self.train_pairs, self.valid_pairs = train, valid
        self.batches = Batches(train, config.seed, config.batch_tokens)
        self.parameters = list(self.model.parameters())
        self.average = copy_parameters(self.model) if config.ema_decay else {}
        adam = config.adam_beta1, config.adam_beta2, config.adam_epsilon
        self.optimiser = Optimiser(self.model, config.optimiser, *adam)
        self._stop_flag = torch.zeros(())  # above 0 where a process asked to stop before the last update
        self._stop_copied: torch.Event | None = None  # on a GPU: its copy to the host has arrived

    def update(self, step: int, stop: bool = False) -> Update:
        """Make update `step`, counted from 1; `stop` tells all processes that this one wants no more."""
        self.model.train()
        rows = self.batches[step]
        tokens = int(self.train_pairs.target_lengths[rows].sum())
        loss_sum = torch.zeros((), dtype=torch.float64, device=self.world.device)
        for parameter in self.parameters:
            parameter.grad = None
        for number, piece in enumerate(micro_batches(self.train_pairs, rows, self.config.device_tokens)):
            if number % self.world.size == self.world.rank:
                seed_everything(self.config.seed, step, number)
                loss = smoothed_cross_entropy(
                    *self.states_to_predict(self.train_pairs, piece), self.config.label_smoothing, PAD
                )
                (loss / tokens).backward()
                loss_sum += loss.detach()
        loss_sum, stop = self._reduce(loss_sum, stop)
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.parameters if p.grad is not None])
        if self.config.clip_norm:
            torch.nn.utils.clip_grads_with_norm_(self.parameters, self.config.clip_norm, norm)
        self.optimiser.step(self.rate(step))
        follow(self.average, self.model, self.config.ema_decay, step)
        return Update(loss_sum, tokens, norm, stop)

    def rate(self, step: int) -> float:
        """Learning rate of update `step`."""
        return learning_rate(step, self.model.d_model, self.config.warmup, self.config.lr_factor)

    def _reduce(self, loss_sum: Tensor, stop: bool) -> tuple[Tensor, bool]:
        """Sum gradients, loss and stop flag over all processes, in one message.

        The stop flag arrives one update late: on a GPU it is copied asynchronously, and only that copy is waited for.
        """
        if self.world.size == 1:
            return loss_sum, stop
        kind = self.parameters[0].dtype
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        extras = torch.stack([loss_sum.to(kind), torch.full_like(loss_sum, float(stop), dtype=kind)])
        flat = self.world.sum(torch.cat([*(gradient.flatten() for gradient in gradients), extras]))
        sizes = [gradient.numel() for gradient in gradients]
        for parameter, part in zip(self.parameters, flat[:-2].split(sizes), strict=True):
            parameter.grad = part.view_as(parameter)
        if self._stop_copied is not None:
            self._stop_copied.synchronize()
        agreed, self._stop_flag = bool(self._stop_flag), flat[-1].to("cpu", non_blocking=True, copy=True)
        self._stop_copied = torch.cuda.current_stream().record_event() if flat.is_cuda else None
        return flat[-2].double(), agreed

    def states_to_predict(self, pairs: Pairs, rows: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        """Decoder states where a subword is to be predicted (tokens, D), output matrix (V, D), subwords (tokens,)."""
        parts = tuple(map(torch.from_numpy, pairs.batch(rows)))
        if self.world.device.type == "cuda":  # copied while the device computes
            parts = tuple(part.pin_memory().to(self.world.device, non_blocking=True) for part in parts)
        source, target, places, output = parts
        states = self.states(source, target).flatten(0, 1).index_select(0, places)  # (B, T, D) -> (tokens, D)
        return states, self.model.output_weight, output

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Copies of the weights, and of the optimiser's moments with the moving average of the weights, if any."""
        moments = self.optimiser.tensors() | {f"average.{name}": value for name, value in self.average.items()}
        return cpu_copy(self.model.state_dict()), cpu_copy(moments)

    def restore(self, weights: dict[str, Tensor], moments: dict[str, Tensor], step: int) -> None:
        """Go back to where `tensors` was called, after update `step`."""
        self.model.load_state_dict(weights)
        self.optimiser.restore(moments, step)
        for name, value in self.average.items():
            value.copy_(moments[f"average.{name}"])


def wide(precision: str) -> torch.dtype:
    """The precision in which weights and sums are kept."""
    return torch.float64 if precision == "float64" else torch.float32
