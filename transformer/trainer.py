"""The training loop: one update after another, the same on any number of processes, resumable after any of them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from transformer.batching import Batches, Pairs, cut, micro_batches
from transformer.checkpoint import Row, State, Store, adam_tensors, cpu_copy, restore_adam
from transformer.distributed import World
from transformer.loss import cross_entropy, smoothed_cross_entropy
from transformer.model import Transformer
from transformer.schedule import learning_rate
from transformer.text import PAD


class Interrupted(Exception):
    """The training was asked to stop; its state is saved."""


class Diverged(ValueError):
    """The loss is no longer a number."""


def seed_everything(*numbers: int) -> None:
    """Seed torch from whole numbers: initial weights from (seed), dropout from (seed, step, micro-batch)."""
    torch.manual_seed(int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1))


class Trainer:
    """Model, optimiser and data of one training: makes one update, validates, and turns itself into tensors."""

    def __init__(self, model: Transformer, train: Pairs, valid: Pairs, world: World, *, seed: int, batch_tokens: int,
                 device_tokens: int, warmup: int, lr_factor: float, adam_beta1: float, adam_beta2: float,
                 adam_epsilon: float, clip_norm: float, label_smoothing: float, precision: str):  # fmt: skip
        dtype = torch.float64 if precision == "float64" else torch.float32
        self.model, self.world = model.to(world.device, dtype), world
        self.train_pairs, self.valid_pairs = train, valid
        self.batches = Batches(train, seed, batch_tokens)
        self.seed, self.device_tokens = seed, device_tokens
        self.warmup, self.lr_factor, self.clip_norm = warmup, lr_factor, clip_norm
        self.label_smoothing = label_smoothing
        self.model.compute = torch.bfloat16 if precision == "bfloat16" else None
        self.parameters = list(self.model.parameters())
        self.optimiser = torch.optim.Adam(
            self.parameters, lr=0.0, betas=(adam_beta1, adam_beta2), eps=adam_epsilon, fused=True
        )

    def update(self, step: int, stop: bool = False) -> tuple[Tensor, int, bool]:
        """Make update `step`, counted from 1.

        Returns the sum of the smoothed loss over the global batch (a scalar on the device), its target tokens, and
        whether any process wants to stop.
        """
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
        if self.clip_norm:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.clip_norm)
        for group in self.optimiser.param_groups:
            group["lr"] = self.rate(step)
        self.optimiser.step()
        return loss_sum, tokens, stop

    def rate(self, step: int) -> float:
        """Learning rate of update `step`."""
        return learning_rate(step, self.model.d_model, self.warmup, self.lr_factor)

    def _reduce(self, loss_sum: Tensor, stop: bool) -> tuple[Tensor, bool]:
        """Sum gradients, loss and the wish to stop over all processes, in one message."""
        if self.world.size == 1:
            return loss_sum, stop
        kind = self.parameters[0].dtype
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        extras = torch.stack([loss_sum.to(kind), torch.full_like(loss_sum, float(stop), dtype=kind)])
        flat = self.world.sum(torch.cat([*(gradient.flatten() for gradient in gradients), extras]))
        sizes = [gradient.numel() for gradient in gradients]
        for parameter, part in zip(self.parameters, flat[:-2].split(sizes), strict=True):
            parameter.grad = part.view_as(parameter)
        return flat[-2].double(), bool(flat[-1])

    def _states(self, pairs: Pairs, rows: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        """Decoder states where a word is to be predicted (tokens, D), the output matrix (V, D), the words (tokens,)."""
        source, target, output = (part.to(self.world.device, non_blocking=True) for part in pairs.batch(rows))
        real = output != PAD
        return self.model(source, target)[real], self.model.output_weight, output[real]

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
        """Copies of the weights and of the optimiser's moments."""
        return cpu_copy(self.model.state_dict()), cpu_copy(adam_tensors(self.model, self.optimiser))

    def restore(self, weights: dict[str, Tensor], moments: dict[str, Tensor], step: int) -> None:
        """Go back to where `tensors` was called, after update `step`."""
        self.model.load_state_dict(weights)
        restore_adam(self.model, self.optimiser, moments, step)


def train(trainer: Trainer, store: Store, *, max_steps: int, log_every: int, save_every: int, patience: int,
          on_update: Callable[[int, int], None], on_rows: Callable[[list[Row]], None],
          wants_stop: Callable[[], bool] = lambda: False) -> State:  # fmt: skip
    """Train from the newest state with step <= max_steps to max_steps, or until `patience` validations in a row bring
    no new best (0: never).

    Every process calls on_rows(rows) with the curve it starts from, on_update(step, target_tokens) after each update
    and on_rows([row]) for each new row. Raises Interrupted, with the state saved, once wants_stop() is true on any
    process, and Diverged when the loss is not finite.
    """
    state = resume(trainer, store, max_steps)
    on_rows(state.curve)
    pending = torch.tensor(state.loss_sum, dtype=torch.float64, device=trainer.world.device)
    while state.step < max_steps and not state.stopped_early:
        loss, tokens, stop = trainer.update(state.step + 1, wants_stop())
        state.step += 1
        state.loss_tokens += tokens
        state.target_tokens += tokens
        pending += loss
        on_update(state.step, tokens)
        if state.step % log_every == 0:
            state.loss_sum = float(pending)
            row = close_row(trainer, state, validated=state.step % save_every == 0)
            pending.zero_()
            if row["valid_loss"] is not None:
                note_validation(state, patience)
                save(trainer, store, state)
            on_rows([row])
        if stop:
            state.loss_sum = float(pending)
            if state.step % save_every:
                save(trainer, store, state)
            raise Interrupted(f"stopped after update {state.step}; the same command goes on from there")
    if trainer.world.leads and not state.end:
        state.end = True
        store.write(state)
    return state


def resume(trainer: Trainer, store: Store, max_steps: int) -> State:
    """Put the trainer where the newest usable state left it; all processes take the leader's choice."""
    state = trainer.world.from_leader(store.newest(max_steps) if trainer.world.leads else None)
    if state is None:
        return State()
    trainer.restore(*store.load(state), state.step)
    state.end = state.end and (state.step == max_steps or state.stopped_early)
    return state


def close_row(trainer: Trainer, state: State, validated: bool) -> Row:
    """Add this step's row to the curve: mean smoothed loss since the last row and, at a save, the validation loss."""
    row: Row = {
        "step": state.step,
        "train_loss": state.loss_sum / state.loss_tokens,
        "valid_loss": trainer.validate() if validated else None,
        "learning_rate": trainer.rate(state.step),
    }
    for name in ("train_loss", "valid_loss"):
        if (loss := row[name]) is not None and not math.isfinite(loss):
            raise Diverged(f"update {state.step}: {name} is {loss}; lower lr_factor, raise warmup or set clip_norm=1")
    state.curve.append(row)
    state.loss_sum, state.loss_tokens = 0.0, 0
    return row


def note_validation(state: State, patience: int) -> None:
    """Remember the best validation and stop early after `patience` validations without a better one."""
    loss = state.curve[-1]["valid_loss"]
    assert loss is not None
    if state.best_loss is None or loss < state.best_loss:
        state.best_step, state.best_loss = state.step, loss
    state.checkpoints[str(state.step)] = loss
    validations = [row["step"] for row in state.curve if row["valid_loss"] is not None]
    since_best = sum(1 for step in validations if step is not None and step > state.best_step)
    state.stopped_early = bool(patience) and since_best >= patience


def save(trainer: Trainer, store: Store, state: State) -> None:
    """Have the leader write the state."""
    if trainer.world.leads:
        store.save(state, *trainer.tensors())
