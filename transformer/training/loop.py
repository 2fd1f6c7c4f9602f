"""The training loop: from the newest saved state to the last update, with a curve, checkpoints and early stopping."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch

from transformer.files import write_json
from transformer.training.checkpoints import CheckpointStore, Row, TrainingState
from transformer.training.config import TrainConfig
from transformer.training.distributed import Stopped
from transformer.training.history import OtherSettings, add_row, replay
from transformer.training.samples import samples, table
from transformer.training.train_step import Trainer, Update
from transformer.training.validation import ValidText, valid_bleu, valid_loss

ADVICE = "Lower lr_factor, raise warmup or set clip_norm=1"


class Interrupted(Exception):
    """Raised when a stop was requested. The state of the last whole update is saved, if there was one."""


class Diverged(ValueError):
    """Raised when a loss or gradient is not finite."""


@dataclass(frozen=True)
class Observers:
    """The functions that a training calls while it runs, on every process.

    on_rows(rows): once with the curve of the state that the training starts from, then with each new row.
    on_update(step, update): after each update. stop_requested(): whether this process requests a stop; called before
    each micro-batch and each step of decoding. A request of one process stops all. On several GPUs with one
    micro-batch each, the training stops one update later. on_samples(text): once with the samples of the state that
    the training starts from, then after each validation, each time with the whole table as CSV.
    """

    on_rows: Callable[[list[Row]], None]
    on_update: Callable[[int, Update], None] = lambda step, update: None
    stop_requested: Callable[[], bool] = lambda: False
    on_samples: Callable[[str], None] = lambda text: None


def train(trainer: Trainer, store: CheckpointStore, valid: ValidText, observers: Observers) -> TrainingState:
    """Train from the newest state with step <= max_steps to the end, and return the last state.

    valid: the text of the validation pairs. Raises Interrupted, after saving the state, when a process requests a stop,
    and Diverged when a loss or gradient is not finite.
    """
    config = trainer.config
    state = resume(trainer, store)
    observers.on_rows(state.curve)
    observers.on_samples(table_of_samples(trainer, state, valid))
    unread: list[Update] = []
    try:
        while True:
            if lacks_row(state, config):
                observers.on_rows([finish_row(trainer, store, state, valid, observers)])
                if state.step % config.save_every == 0:
                    observers.on_samples(table_of_samples(trainer, state, valid))
            if state.step == config.max_steps or state.stopped_early:
                break
            update = trainer.update(state.step + 1, observers.stop_requested)
            state.step += 1
            unread.append(update)
            if state.step % config.log_every == 0 or trainer.world.device.type == "cpu":  # reading waits for a GPU
                read_losses(trainer, store, state, unread)
            observers.on_update(state.step, update)
    except Stopped:
        read_losses(trainer, store, state, unread)
        interrupt(trainer, store, state)
    if trainer.world.is_leader and not state.end:
        state.end = True
        store.write(state)
    trainer.world.wait()  # then all processes may read the last state
    return state


def lacks_row(state: TrainingState, config: TrainConfig) -> bool:
    """Whether the curve must get a row at the step of this state, and has none yet."""
    has_row = bool(state.curve) and state.curve[-1]["step"] == state.step
    return state.step > 0 and state.step % config.log_every == 0 and not has_row


def finish_row(
    trainer: Trainer, store: CheckpointStore, state: TrainingState, valid: ValidText, observers: Observers
) -> Row:
    """Add the row of this step to the curve and return it. At multiples of save_every, validate and save the state."""
    validates = state.step % trainer.config.save_every == 0
    if validates:
        with trainer.whole_weights():
            found = validation(trainer, state.step, valid, observers)
            lines = samples(trainer, valid, observers.stop_requested)
        # Both or neither: a state that was saved between them would have a validation without samples.
        state.validations[str(state.step)], state.samples[str(state.step)] = found, lines
    row = add_row(state, state.step, trainer.config, trainer.rate)
    if validates:
        save(trainer, store, state)
    return row


def validation(trainer: Trainer, step: int, valid: ValidText, observers: Observers) -> dict[str, float]:
    """The validation after update `step`: loss, and bleu if best_by is bleu. Raises Diverged if it is not finite."""
    loss = valid_loss(trainer, observers.stop_requested)
    if not math.isfinite(loss):
        raise Diverged(f"Update {step}: valid_loss={loss} is not finite. This update was not saved. {ADVICE}.")
    if trainer.config.best_by == "loss":
        return {"loss": loss}
    return {"loss": loss, "bleu": valid_bleu(trainer, valid, observers.stop_requested)}


def table_of_samples(trainer: Trainer, state: TrainingState, valid: ValidText) -> str:
    """The samples of a state as CSV."""
    return table(state.samples, trainer.valid_pairs.source_lengths, valid, trainer.config.save_every)


def interrupt(trainer: Trainer, store: CheckpointStore, state: TrainingState) -> NoReturn:
    """Save the state, unless it is the newest one on the disk already, and raise Interrupted."""
    if not state.step:
        raise Interrupted("Training stopped before its first update. Run the same command again to start.")
    if store.last_step != state.step:
        save(trainer, store, state)
    # The end of a process makes torchrun end the others, so all wait until the state is saved.
    trainer.world.wait()
    raise Interrupted(
        f"Training stopped after update {state.step}. Its state is saved. Run the same command again to resume."
    )


def resume(trainer: Trainer, store: CheckpointStore) -> TrainingState:
    """Restore the newest state that this training would have, the same on all processes; an empty one if none is left.

    Prints why a newer state, made with other settings, cannot be used.
    """
    config, world = trainer.config, trainer.world
    state = TrainingState(**world.from_leader(vars(newest_usable(trainer, store)) if world.is_leader else None))
    if state.step:  # processes on other machines do not have the leader's folder, so its tensors are sent
        parts = store.load(state) if world.is_leader else ({}, {})
        store.last_step = state.step
        weights, optimiser = map(world.tensors_from_leader, parts)
        trainer.restore(weights, optimiser, state.step)
        state.end = state.end and (state.step == config.max_steps or state.stopped_early)
    return state


def newest_usable(trainer: Trainer, store: CheckpointStore) -> TrainingState:
    """The newest state that a training with these settings would have; see `resume`."""
    why_not = ""
    damaged: list[Path] = []
    for state in store.states(trainer.config.max_steps, damaged):
        try:
            replay(state, trainer.config, trainer.rate)
            break
        except OtherSettings as reason:
            why_not = why_not or str(reason)
    else:
        state = TrainingState()
    start = f"Training resumes after update {state.step}." if state.step else "Training starts anew."
    if damaged:
        for path in damaged:
            path.rename(path.with_suffix(".damaged"))
        print(
            f"{', '.join(map(str, damaged))}: damaged, or a file that it lists is. It was set aside as .damaged. "
            f"{start} Check the disk if this happens again.",
            file=sys.stderr,
        )
    if why_not:
        print(f"{why_not} {start}", file=sys.stderr)
    return state


def read_losses(trainer: Trainer, store: CheckpointStore, state: TrainingState, unread: list[Update]) -> None:
    """Move the losses of the last updates, which may still be on a GPU, to the state, and empty `unread`.

    Raises Diverged for the first update whose loss or gradient norm is not finite; the leader writes the line numbers
    of that update to diverged.json.
    """
    if not unread:
        return
    losses = torch.stack([update.loss for update in unread]).tolist()
    norms = torch.stack([update.gradient_norm for update in unread]).tolist()
    for loss, norm, update in zip(losses, norms, unread, strict=True):
        step = len(state.losses) + 1
        if not math.isfinite(loss + norm):
            lines = np.sort(trainer.train_pairs.lines[trainer.batches[step]]).tolist()
            path = store.folder / "diverged.json"
            if trainer.world.is_leader:
                write_json(path, {"update": step, "train_lines": lines})
            some = trainer.train_pairs.places("train", lines[:8])
            some += f" and {len(lines) - 8} more, see {path}" if lines[8:] else ""
            raise Diverged(
                f"Update {step}: the loss or its gradient is not finite ({some}). This update was not "
                f"saved. {ADVICE}, and check these lines."
            )
        state.losses.append(loss)
        state.tokens.append(update.tokens)
    unread.clear()


def save(trainer: Trainer, store: CheckpointStore, state: TrainingState) -> None:
    """Save the state: all processes gather its tensors, and the leader writes them."""
    tensors = trainer.tensors()
    if trainer.world.is_leader:
        store.save(state, *tensors)
    store.last_step = state.step  # all processes must know, or only some of them would save this state again
