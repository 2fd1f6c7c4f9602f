"""The training loop: from the newest saved state to the last update, with a curve, checkpoints and early stopping."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import torch
from torch import Tensor

from transformer.files import write_json
from transformer.training.checkpoints import CheckpointStore, Row, TrainingState
from transformer.training.train_step import Trainer, Update
from transformer.training.validation import IdsToText, valid_bleu, valid_loss

ADVICE = "Lower lr_factor, raise warmup or set clip_norm=1"


class Interrupted(Exception):
    """Raised when a stop was requested and the state is saved."""


class Diverged(ValueError):
    """Raised when a loss or gradient is not finite."""


@dataclass(frozen=True)
class Observers:
    """The functions that a training calls while it runs, on every process.

    on_rows(rows): once with the curve of the state that the training starts from, then with each new row.
    on_update(step, update): after each update. stop_requested(): whether this process requests a stop; a request of one
    process stops all.
    """

    on_rows: Callable[[list[Row]], None]
    on_update: Callable[[int, Update], None] = lambda step, update: None
    stop_requested: Callable[[], bool] = lambda: False


def train(trainer: Trainer, store: CheckpointStore, to_text: IdsToText, observers: Observers) -> TrainingState:
    """Train from the newest state with step <= max_steps to the end, and return the last state.

    to_text: spells the line of some ids. Raises Interrupted, after saving the state, when a process requests a stop,
    and Diverged when a loss or gradient is not finite.
    """
    config = trainer.config
    state = resume(trainer, store)
    observers.on_rows(state.curve)
    pending = torch.tensor(state.loss_sum, dtype=torch.float64, device=trainer.world.device)
    unchecked: dict[int, Tensor] = {}
    while state.step < config.max_steps and not state.stopped_early:
        update = trainer.update(state.step + 1, observers.stop_requested())
        state.count(update.tokens)
        pending += update.loss
        unchecked[state.step] = update.loss + update.gradient_norm
        completes_row = state.step % config.log_every == 0
        if completes_row or update.stop or trainer.world.device.type == "cpu":  # reading a loss waits for a GPU
            check_finite(trainer, store, unchecked)
        observers.on_update(state.step, update)
        if completes_row:
            state.loss_sum = float(pending)
            pending.zero_()
            observers.on_rows([finish_row(trainer, store, state, to_text)])
        if update.stop and state.step < config.max_steps:
            state.loss_sum = float(pending)
            interrupt(trainer, store, state)
    if trainer.world.is_leader and not state.end:
        state.end = True
        store.write(state)
    return state


def finish_row(trainer: Trainer, store: CheckpointStore, state: TrainingState, to_text: IdsToText) -> Row:
    """Add the row of this step to the curve and return it. At multiples of save_every, validate and save the state."""
    row = add_row(trainer, state, to_text)
    if row["valid_loss"] is not None:
        record_validation(state, trainer.config.patience)
        save(trainer, store, state)
    return row


def interrupt(trainer: Trainer, store: CheckpointStore, state: TrainingState) -> NoReturn:
    """Save the state, unless it was saved at this step already, and raise Interrupted."""
    if state.step % trainer.config.save_every:
        save(trainer, store, state)
    raise Interrupted(
        f"Training stopped after update {state.step}. Its state is saved. Run the same command again to resume."
    )


def resume(trainer: Trainer, store: CheckpointStore) -> TrainingState:
    """Restore the newest complete state, the same on all processes, and return it; an empty state if there is none."""
    max_steps = trainer.config.max_steps
    state = trainer.world.from_leader(store.newest(max_steps) if trainer.world.is_leader else None)
    if state is None:
        return TrainingState()
    trainer.restore(*store.load(state), state.step)
    state.end = state.end and (state.step == max_steps or state.stopped_early)
    return state


def check_finite(trainer: Trainer, store: CheckpointStore, unchecked: dict[int, Tensor]) -> None:
    """Raise Diverged for the first update whose loss or gradient norm is not finite, else empty `unchecked`.

    unchecked: step -> loss + gradient norm. The leader writes the line numbers of that update to diverged.json.
    """
    for step, value in unchecked.items():
        if not math.isfinite(float(value)):
            lines = np.sort(trainer.train_pairs.lines[trainer.batches[step]]).tolist()
            path = store.folder / "diverged.json"
            if trainer.world.is_leader:
                write_json(path, {"update": step, "train_lines": lines})
            some = ", ".join(map(str, lines[:8])) + (f" and {len(lines) - 8} more, see {path}" if lines[8:] else "")
            raise Diverged(
                f"Update {step}: the loss or its gradient is not finite (train lines {some}). This update was not "
                f"saved. {ADVICE}, and check these lines."
            )
    unchecked.clear()


def add_row(trainer: Trainer, state: TrainingState, to_text: IdsToText) -> Row:
    """Add the row of this step to the curve: mean smoothed loss since the last row, and at a save the validation."""
    validates = state.step % trainer.config.save_every == 0
    row: Row = {
        "step": state.step,
        "train_loss": state.loss_sum / state.loss_tokens,
        "valid_loss": valid_loss(trainer) if validates else None,
        "learning_rate": trainer.rate(state.step),
    }
    if (loss := row["valid_loss"]) is not None and not math.isfinite(loss):
        raise Diverged(f"Update {state.step}: valid_loss={loss} is not finite. This update was not saved. {ADVICE}.")
    if trainer.config.best_by == "bleu":
        row["valid_bleu"] = valid_bleu(trainer, to_text) if validates else None
    state.curve.append(row)
    state.loss_sum, state.loss_tokens = 0.0, 0
    return row


def record_validation(state: TrainingState, patience: int) -> None:
    """Add the score of the last row's validation to the state's checkpoints.

    Sets stopped_early after `patience` validations without a new best.
    """
    row = state.curve[-1]
    loss, bleu = row["valid_loss"], row.get("valid_bleu")
    score = loss if bleu is None else -bleu
    assert score is not None
    state.checkpoints[str(state.step)] = score
    validations = [row["step"] for row in state.curve if row["valid_loss"] is not None]
    since_best = sum(1 for step in validations if step is not None and step > state.best_step)
    state.stopped_early = bool(patience) and since_best >= patience


def save(trainer: Trainer, store: CheckpointStore, state: TrainingState) -> None:
    """Save the state; only the leader writes."""
    if trainer.world.is_leader:
        store.save(state, *trainer.tensors())
