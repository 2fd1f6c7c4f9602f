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
from transformer.training.batches import Batches, cut, micro_batches
from transformer.training.distributed import World
from transformer.training.ema import copy_parameters, follow
from transformer.training.loss import cross_entropy, smoothed_cross_entropy
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

    def __init__(self, model: Transformer, train: Pairs, valid: Pairs, world: World, *, seed: int, batch_tokens: int,
                 device_tokens: int, warmup: int, lr_factor: float, optimiser: str, adam_beta1: float,
                 adam_beta2: float, adam_epsilon: float, clip_norm: float, label_smoothing: float, ema_decay: float,
                 precision: str, compile: bool):  # fmt: skip
        for split, pairs in (("train", train), ("valid", valid)):
            pairs.check_lengths(split, device_tokens)
        keep_freed_memory()
        torch.backends.cuda.enable_cudnn_sdp(False)  # it plans for 20 to 40 ms at each new shape: at nearly each batch
        self.model, self.world = model.to(world.device, wide(precision)), world
        rounds = precision == "bfloat16" and multiplies_bfloat16(world.device)
        self.model.compute = torch.bfloat16 if rounds else None
        compiles = compile and world.device.type == "cuda"  # for a CPU it makes nothing faster
        self.states = torch.compile(self.model, dynamic=True) if compiles else self.model
        self.train_pairs, self.valid_pairs = train, valid
        self.batches = Batches(train, seed, batch_tokens)
        self.seed, self.device_tokens = seed, device_tokens
        self.warmup, self.lr_factor, self.clip_norm = warmup, lr_factor, clip_norm
        self.label_smoothing, self.ema_decay = label_smoothing, ema_decay
        self.parameters = list(self.model.parameters())
        self.average = copy_parameters(self.model) if ema_decay else {}
        self.optimiser = Optimiser(self.model, optimiser, adam_beta1, adam_beta2, adam_epsilon)
        self._wish = torch.zeros(())  # to stop, of any process, before the update made last
        self._written: torch.Event | None = None  # when a GPU has told it

    def update(self, step: int, stop: bool = False) -> Update:
        """Make update `step`, counted from 1; `stop` tells all processes that this one wants no more."""
        self.model.train()
        rows = self.batches[step]
        tokens = int(self.train_pairs.target_lengths[rows].sum())
        loss_sum = torch.zeros((), dtype=torch.float64, device=self.world.device)
        for parameter in self.parameters:
            parameter.grad = None
        for number, piece in enumerate(micro_batches(self.train_pairs, rows, self.device_tokens)):
            if number % self.world.size == self.world.rank:
                seed_everything(self.seed, step, number)
                loss = smoothed_cross_entropy(*self._states(self.train_pairs, piece), self.label_smoothing, PAD)
                (loss / tokens).backward()
                loss_sum += loss.detach()
        loss_sum, stop = self._reduce(loss_sum, stop)
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.parameters if p.grad is not None])
        if self.clip_norm:
            torch.nn.utils.clip_grads_with_norm_(self.parameters, self.clip_norm, norm)
        self.optimiser.step(self.rate(step))
        follow(self.average, self.model, self.ema_decay, step)
        return Update(loss_sum, tokens, norm, stop)

    def rate(self, step: int) -> float:
        """Learning rate of update `step`."""
        return learning_rate(step, self.model.d_model, self.warmup, self.lr_factor)

    def _reduce(self, loss_sum: Tensor, stop: bool) -> tuple[Tensor, bool]:
        """Sum gradients, loss and the wish to stop over all processes, in one message.

        The wish comes back one update later: a GPU tells it when it gets there, and only that is waited for.
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
        if self._written is not None:
            self._written.synchronize()
        agreed, self._wish = bool(self._wish), flat[-1].to("cpu", non_blocking=True, copy=True)
        self._written = torch.cuda.current_stream().record_event() if flat.is_cuda else None
        return flat[-2].double(), agreed

    def _states(self, pairs: Pairs, rows: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        """Decoder states where a subword is to be predicted (tokens, D), output matrix (V, D), subwords (tokens,)."""
        parts = tuple(map(torch.from_numpy, pairs.batch(rows)))
        if self.world.device.type == "cuda":  # copied while the device computes
            parts = tuple(part.pin_memory().to(self.world.device, non_blocking=True) for part in parts)
        source, target, places, output = parts
        states = self.states(source, target).flatten(0, 1).index_select(0, places)  # (B, T, D) -> (tokens, D)
        return states, self.model.output_weight, output

    @torch.inference_mode()
    def validate(self) -> float:
        """Negative log-likelihood on the validation pairs, nats per target token: no smoothing, no dropout."""
        self.model.eval()
        order = np.lexsort((self.valid_pairs.source_lengths, self.valid_pairs.longest))
        total = torch.zeros((), dtype=torch.float64, device=self.world.device)
        for number, run in enumerate(cut(self.valid_pairs.longest[order], self.device_tokens)):
            if number % self.world.size == self.world.rank:
                total += cross_entropy(*self._states(self.valid_pairs, order[run]))
        return float(self.world.sum(total)) / int(self.valid_pairs.target_lengths.sum())

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
