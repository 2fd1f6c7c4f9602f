"""The training loop: from the newest state to the last update, with a curve, checkpoints and an early end."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import torch
from torch import Tensor

from transformer.files import whole_file
from transformer.training.checkpoints import CheckpointStore, Row, TrainingState
from transformer.training.train_step import Trainer, Update
from transformer.training.validation import Text, valid_bleu, valid_loss


class Interrupted(Exception):
    """The training was asked to stop; its state is saved."""


class Diverged(ValueError):
    """A loss or gradient is no longer a number."""


@dataclass(frozen=True)
class Observers:
    """What a training calls while it runs, on every process.

    on_rows(rows): first with the curve that it starts from, then with each new row. on_update(step, update): after each
    update. wants_stop(): whether this process asks for an end; any one of them ends all.
    """

    on_rows: Callable[[list[Row]], None]
    on_update: Callable[[int, Update], None] = lambda step, update: None
    wants_stop: Callable[[], bool] = lambda: False


def train(trainer: Trainer, store: CheckpointStore, text: Text, observers: Observers) -> TrainingState:
    """Train from the newest state with step <= max_steps to the end and return the last state.

    text: turns ids into a line. Raises Interrupted, with the state saved, once a process asks for an end, and Diverged
    when a loss or gradient is not finite.
    """
    config = trainer.config
    state = resume(trainer, store)
    observers.on_rows(state.curve)
    pending = torch.tensor(state.loss_sum, dtype=torch.float64, device=trainer.world.device)
    unchecked: dict[int, Tensor] = {}
    while state.step < config.max_steps and not state.stopped_early:
        update = trainer.update(state.step + 1, observers.wants_stop())
        state.count(update.tokens)
        pending += update.loss
        unchecked[state.step] = update.loss + update.gradient_norm
        ends_row = state.step % config.log_every == 0
        if ends_row or update.stop or trainer.world.device.type == "cpu":  # on a GPU, reading a number waits for it
            check_finite(trainer, store, unchecked)
        observers.on_update(state.step, update)
        if ends_row:
            state.loss_sum = float(pending)
            pending.zero_()
            observers.on_rows([end_row(trainer, store, state, text)])
        if update.stop and state.step < config.max_steps:
            state.loss_sum = float(pending)
            interrupt(trainer, store, state)
    if trainer.world.leads and not state.end:
        state.end = True
        store.write(state)
    return state


def end_row(trainer: Trainer, store: CheckpointStore, state: TrainingState, text: Text) -> Row:
    """Add this step's row to the curve; at a multiple of save_every it has a validation, and the state is saved."""
    row = add_row(trainer, state, text)
    if row["valid_loss"] is not None:
        note_validation(state, trainer.config.patience)
        save(trainer, store, state)
    return row


def interrupt(trainer: Trainer, store: CheckpointStore, state: TrainingState) -> NoReturn:
    """Save the state, where this step has not saved it yet, and raise Interrupted."""
    if state.step % trainer.config.save_every:
        save(trainer, store, state)
    raise Interrupted(f"stopped after update {state.step}; the same command resumes from there")


def resume(trainer: Trainer, store: CheckpointStore) -> TrainingState:
    """Put the trainer where the newest usable state left it; all processes take the leader's choice."""
    max_steps = trainer.config.max_steps
    state = trainer.world.from_leader(store.newest(max_steps) if trainer.world.leads else None)
    if state is None:
        return TrainingState()
    trainer.restore(*store.load(state), state.step)
    state.end = state.end and (state.step == max_steps or state.stopped_early)
    return state


def check_finite(trainer: Trainer, store: CheckpointStore, unchecked: dict[int, Tensor]) -> None:
    """Raise Diverged for the first update whose loss or gradient norm is not finite; remove those that are.

    unchecked: step -> loss + gradient norm.
    """
    for step, value in unchecked.items():
        if not math.isfinite(float(value)):
            lines = np.sort(trainer.train_pairs.lines[trainer.batches[step]]).tolist()
            path = store.folder / "diverged.json"
            if trainer.world.leads:
                with whole_file(path) as temporary:
                    temporary.write_text(json.dumps({"update": step, "train_lines": lines}) + "\n", encoding="utf-8")
            some = ", ".join(map(str, lines[:8])) + (f" and {len(lines) - 8} more, see {path}" if lines[8:] else "")
            raise Diverged(
                f"Update {step}: the loss or its gradient is not finite (train lines {some}). This update was not "
                "saved. Lower lr_factor, raise warmup or set clip_norm=1, and look at these lines"
            )
    unchecked.clear()


def add_row(trainer: Trainer, state: TrainingState, text: Text) -> Row:
    """Add this step's row to the curve: mean smoothed loss since the last row and, at a save, the validation."""
    validates = state.step % trainer.config.save_every == 0
    row: Row = {
        "step": state.step,
        "train_loss": state.loss_sum / state.loss_tokens,
        "valid_loss": valid_loss(trainer) if validates else None,
        "learning_rate": trainer.rate(state.step),
    }
    if (loss := row["valid_loss"]) is not None and not math.isfinite(loss):
        raise Diverged(f"Update {state.step}: valid_loss is {loss}. Lower lr_factor, raise warmup or set clip_norm=1")
    if trainer.config.best_by == "bleu":
        row["valid_bleu"] = valid_bleu(trainer, text) if validates else None
    state.curve.append(row)
    state.loss_sum, state.loss_tokens = 0.0, 0
    return row


def note_validation(state: TrainingState, patience: int) -> None:
    """Record the worth of the last row's validation; mark the end after `patience` of them without a better one."""
    row = state.curve[-1]
    loss, bleu = row["valid_loss"], row.get("valid_bleu")
    worth = loss if bleu is None else -bleu
    assert worth is not None
    state.checkpoints[str(state.step)] = worth
    validations = [row["step"] for row in state.curve if row["valid_loss"] is not None]
    since_best = sum(1 for step in validations if step is not None and step > state.best_step)
    state.stopped_early = bool(patience) and since_best >= patience


def save(trainer: Trainer, store: CheckpointStore, state: TrainingState) -> None:
    """Have the leader write the state."""
    if trainer.world.leads:
        store.save(state, *trainer.tensors())
