"""What a training is, and what follows from its losses and validations: curve, checkpoints, early end.

The settings in CHANGES_NO_UPDATE change no update. If only they differ, a saved state is used, provided that a fresh
training with the current values would have come to it. If any other setting differs, it is another training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from transformer.model.config import TransformerConfig
from transformer.training.checkpoints import CheckpointStore, Row, TrainingState, best_steps
from transformer.training.config import SOME_BLEU, TrainConfig

CHANGES_NO_UPDATE = ("max_steps", "log_every", "save_every", "keep", "patience", "best_by")
Identity = Mapping[str, Mapping[str, Any]]  # part (knobs, data, ...) -> name -> value or hash


def identity_of(config: TrainConfig, sizes: TransformerConfig, data: Mapping[str, str | None]) -> dict[str, dict]:
    """What the updates of a training depend on. data: hashes of its data and of its initial weights."""
    settings = {name: value for name, value in asdict(config).items() if name not in CHANGES_NO_UPDATE}
    return {"knobs": {**asdict(sizes), **settings}, "data": dict(data)}


def differences(one: Identity, other: Identity) -> list[str]:
    """The names whose values differ between two trainings."""
    parts = [(one.get(part, {}), other.get(part, {})) for part in {**one, **other}]
    return [name for own, their in parts for name in {**own, **their} if own.get(name) != their.get(name)]


class OtherSettings(Exception):
    """Raised for a state that a training with these settings would not have."""


def add_row(state: TrainingState, step: int, config: TrainConfig, rate: Callable[[int], float]) -> Row:
    """Add the row of update `step` to the curve and return it: mean smoothed loss since the last row, and validation.

    step: a multiple of log_every. At a multiple of save_every, the row has the validation of that step, and the kept
    checkpoints and stopped_early follow from its score.
    """
    since = slice(step - config.log_every, step)
    validates = step % config.save_every == 0
    validation = state.validations[str(step)] if validates else {}
    row: Row = {
        "step": step,
        "train_loss": math.fsum(state.losses[since]) / sum(state.tokens[since]),
        "valid_loss": validation.get("loss"),
        "learning_rate": rate(step),
    }
    if config.best_by == "bleu":
        row["valid_bleu"] = validation["bleu"] if validates else None
    state.curve.append(row)
    if validates:
        state.checkpoints[str(step)] = score(validation, config.best_by)
        state.checkpoints = kept_checkpoints(state.checkpoints, config.keep)
        since_best = (step - state.best_step) // config.save_every  # validations
        state.stopped_early = bool(config.patience) and since_best >= config.patience
    return row


def score(validation: dict[str, float], best_by: str) -> list[float]:
    """A validation as a score by which checkpoints are compared, lower is better: [loss], or [-bleu].

    A BLEU below SOME_BLEU is noise, so among validations with less the loss decides: [0, loss].
    """
    if best_by == "loss":
        return [validation["loss"]]
    return [-validation["bleu"]] if validation["bleu"] >= SOME_BLEU else [0.0, validation["loss"]]


def kept_checkpoints(checkpoints: dict[str, list[float]], keep: int) -> dict[str, list[float]]:
    """The last `keep` and the best `keep` checkpoints (step -> score), in the order of steps."""
    steps = sorted(map(int, checkpoints))
    return {str(step): checkpoints[str(step)] for step in sorted({*steps[-keep:], *best_steps(checkpoints)[:keep]})}


def replay(state: TrainingState, config: TrainConfig, rate: Callable[[int], float]) -> None:
    """Set curve, checkpoints and stopped_early of a state that was read from the disk.

    A training that was stopped in a validation has no row for its last step yet. Raises OtherSettings, with the reason,
    if a training with these settings would not be in this state, or would need a file or a validation that is not
    there.
    """
    for step in range(config.log_every, state.step + 1, config.log_every):
        if step % config.save_every == 0:
            validation = state.validations.get(str(step), {})
            if not validation and step == state.step:
                break
            if not validation:
                raise OtherSettings(
                    f"save_every={config.save_every} needs a validation after update {step}, which was not made."
                )
            if config.best_by == "bleu" and "bleu" not in validation:
                raise OtherSettings(
                    f"best_by=bleu needs the BLEU of the checkpoint of update {step}, which was not computed."
                )
        add_row(state, step, config, rate)
        if state.stopped_early and step < state.step:
            raise OtherSettings(
                f"patience={config.patience} ends this training after update {step}, whose state was not kept."
            )
    for step in state.checkpoints:
        if CheckpointStore.weights_name(int(step)) not in state.files:
            raise OtherSettings(f"keep={config.keep} needs the checkpoint of update {step}, which was not kept.")
