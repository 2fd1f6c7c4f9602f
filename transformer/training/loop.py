"""The training loop: from the newest state to the last update, with a curve, checkpoints and an early end."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from transformer.files import whole_file
from transformer.training.checkpoints import Row, State, Store
from transformer.training.train_step import Trainer, Update
from transformer.training.validation import Text, valid_bleu


class Interrupted(Exception):
    """The training was asked to stop; its state is saved."""


class Diverged(ValueError):
    """A loss or gradient is no longer a number."""


@dataclass(frozen=True)
class Loop:
    """When a training reports, validates and ends.

    best_by: what ranks checkpoints and ends early, loss or bleu (of greedy translations; it costs their time).
    patience: validations in a row without a new best after which it ends, 0: never.
    """

    max_steps: int
    log_every: int
    save_every: int
    patience: int
    best_by: str


def train(trainer: Trainer, store: Store, loop: Loop, text: Text, *, on_update: Callable[[int, Update], None],
          on_rows: Callable[[list[Row]], None], wants_stop: Callable[[], bool] = lambda: False) -> State:  # fmt: skip
    """Train from the newest state with step <= max_steps to the end; text turns ids into a line.

    Every process calls on_rows(rows) with the curve it starts from, on_update(step, update) after each update
    and on_rows([row]) for each new row. Raises Interrupted, with the state saved, once wants_stop() is true on any
    process, and Diverged when a loss or gradient is not finite.
    """
    state = resume(trainer, store, loop.max_steps)
    on_rows(state.curve)
    pending = torch.tensor(state.loss_sum, dtype=torch.float64, device=trainer.world.device)
    unread: dict[int, Tensor] = {}
    while state.step < loop.max_steps and not state.stopped_early:
        update = trainer.update(state.step + 1, wants_stop())
        state.step += 1
        state.loss_tokens += update.tokens
        state.target_tokens += update.tokens
        pending += update.loss
        unread[state.step] = update.loss + update.gradient_norm
        logs = state.step % loop.log_every == 0
        if logs or update.stop or trainer.world.device.type == "cpu":  # on a GPU, reading a number waits for it
            refuse_nonsense(trainer, store, unread)
        on_update(state.step, update)
        if logs:
            state.loss_sum = float(pending)
            row = close_row(trainer, state, loop, text)
            pending.zero_()
            if row["valid_loss"] is not None:
                note_validation(state, loop)
                save(trainer, store, state)
            on_rows([row])
        if update.stop and state.step < loop.max_steps:
            state.loss_sum = float(pending)
            if state.step % loop.save_every:
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


def refuse_nonsense(trainer: Trainer, store: Store, unread: dict[int, Tensor]) -> None:
    """Forget the updates whose loss and gradient norm are finite; raise Diverged for the first that is not."""
    for step, value in unread.items():
        if not math.isfinite(float(value)):
            lines = np.sort(trainer.train_pairs.lines[trainer.batches[step]]).tolist()
            path = store.folder / "diverged.json"
            if trainer.world.leads:
                with whole_file(path) as temporary:
                    temporary.write_text(json.dumps({"update": step, "train_lines": lines}) + "\n", encoding="utf-8")
            some = ", ".join(map(str, lines[:8])) + (f" and {len(lines) - 8} more, see {path}" if lines[8:] else "")
            raise Diverged(
                f"update {step}: the loss or its gradient is not finite, over train lines {some}; nothing of it is "
                "saved: lower lr_factor, raise warmup or set clip_norm=1, and look at these lines"
            )
    unread.clear()


def close_row(trainer: Trainer, state: State, loop: Loop, text: Text) -> Row:
    """Add this step's row to the curve: mean smoothed loss since the last row and, at a save, the validation."""
    validates = state.step % loop.save_every == 0
    row: Row = {
        "step": state.step,
        "train_loss": state.loss_sum / state.loss_tokens,
        "valid_loss": trainer.validate() if validates else None,
        "learning_rate": trainer.rate(state.step),
    }
    if (loss := row["valid_loss"]) is not None and not math.isfinite(loss):
        raise Diverged(f"update {state.step}: valid_loss is {loss}; lower lr_factor, raise warmup or set clip_norm=1")
    if loop.best_by == "bleu":
        row["valid_bleu"] = valid_bleu(trainer.model, trainer.valid_pairs, trainer.world, text) if validates else None
    state.curve.append(row)
    state.loss_sum, state.loss_tokens = 0.0, 0
    return row


def note_validation(state: State, loop: Loop) -> None:
    """Remember what this validation is worth, and end early after `patience` of them without a better one."""
    row = state.curve[-1]
    loss, bleu = row["valid_loss"], row.get("valid_bleu")
    worth = loss if bleu is None else -bleu
    assert worth is not None
    state.checkpoints[str(state.step)] = worth
    validations = [row["step"] for row in state.curve if row["valid_loss"] is not None]
    since_best = sum(1 for step in validations if step is not None and step > state.best_step)
    state.stopped_early = bool(loop.patience) and since_best >= loop.patience


def save(trainer: Trainer, store: Store, state: State) -> None:
    """Have the leader write the state."""
    if trainer.world.leads:
        store.save(state, *trainer.tensors())
