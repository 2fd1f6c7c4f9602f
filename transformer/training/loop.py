"""The training loop: from the newest saved state to the last update, with a curve, checkpoints and early stopping."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256 as sha256_of
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch
from safetensors.torch import save

from transformer.files import Mistake, UnreadableInput, Untrainable, read_json, sha256, write_json
from transformer.training.checkpoints import CheckpointStore, Row, TrainingState
from transformer.training.distributed import Stopped
from transformer.training.replay import Identity, OtherSettings, add_row, differences, identity_of, replay
from transformer.training.train_step import Trainer, Update
from transformer.training.validation import ValidText, samples, table, valid_bleu, valid_loss

ADVICE = "Lower lr_factor, raise warmup or set clip_norm=1"


class Interrupted(Exception):
    """Raised when a stop was requested. The state of the last complete update is saved, if there was one."""


class Diverged(Untrainable):
    """Raised when a loss or gradient is not finite."""


@dataclass(frozen=True)
class Observers:
    """The functions that a training calls while it runs, on every process.

    on_rows(rows): once with the curve of the state that the training starts from, then with each new row.
    on_update(step, update): after each update. stop_requested(): whether this process requests a stop; called before
    each micro-batch and each step of decoding. A request of one process stops all. on_samples(text): once with the
    samples of the state that the training starts from, then after each validation, each time with the complete table
    as CSV.
    """

    on_rows: Callable[[list[Row]], None] = lambda rows: None
    on_update: Callable[[int, Update], None] = lambda step, update: None
    stop_requested: Callable[[], bool] = lambda: False
    on_samples: Callable[[str], None] = lambda text: None


def train(
    trainer: Trainer,
    store: CheckpointStore,
    valid: ValidText | None = None,
    observers: Observers | None = None,
    environment: Mapping[str, str | int] | None = None,
    identity: Identity | None = None,
) -> TrainingState:
    """Train from the newest state with step <= max_steps to the end, and return the last state. See TrainingLoop.

    valid: None: text of numbers, see ValidText.build_from_ids. environment: the software and hardware of this process,
    which the states of its updates keep. identity: what the updates depend on; None: settings, sizes, pairs
    and initial weights of the trainer. Raises Mistake if the folder of `store` has another training.
    """
    valid, observers = valid or ValidText.build_from_ids(trainer.valid_pairs), observers or Observers()
    check_folder(trainer, store, identity)
    return TrainingLoop(trainer, store, valid, observers, environment or {}).run()


def check_folder(trainer: Trainer, store: CheckpointStore, identity: Identity | None) -> None:
    """Raise Mistake on all processes if a folder has states of another training; else write identity.json there.

    identity: see `train`. A model that this training has trained is not taken for other initial weights.
    """
    path, recorded = store.folder / "identity.json", None
    has_states = any(store.folder.glob("state-*.json"))
    if has_states and path.is_file():
        with suppress(UnreadableInput):  # a power cut may leave an empty file
            recorded = read_json(path)
    if identity is None:
        pairs = {"train": trainer.train_pairs.digest(), "valid": trainer.valid_pairs.digest()}
        weights = sha256_of(save(trainer.tensors()[0])).hexdigest()
        if recorded and weights in map(sha256, store.folder.glob("weights-*.safetensors")):
            weights = recorded["data"].get("initial weights")
        identity = identity_of(trainer.config, trainer.model.config, {**pairs, "initial weights": weights})
        recorded = {} if has_states and recorded is None else recorded
    if names := trainer.world.broadcast(differences(identity if recorded is None else recorded, identity)):
        anew = " Build the model anew, with torch seeded before it, or" if names == ["initial weights"] else ""
        raise Mistake(
            f"{store.folder} has another training: not equal are {', '.join(names[:4])}. Nothing was trained.{anew} "
            f"{'name' if anew else 'Name'} another folder, or delete this one."
        )
    if trainer.world.is_leader and recorded is None:
        write_json(path, identity)


class TrainingLoop:
    """A training from the newest state in `store` to max_steps or an early end.

    valid: the text of the validation pairs. environment: see `train`. state: the state after the last update. unread:
    the updates whose losses may still be on a GPU, and are not in the state.
    """

    def __init__(
        self,
        trainer: Trainer,
        store: CheckpointStore,
        valid: ValidText,
        observers: Observers,
        environment: Mapping[str, str | int],
    ):
        self.trainer, self.store, self.valid, self.observers = trainer, store, valid, observers
        self.environment = dict(environment)
        self.config, self.world = trainer.config, trainer.world
        self.state = TrainingState()
        self.unread: list[Update] = []

    def run(self) -> TrainingState:
        """Train to the end and return the last state.

        Raises Interrupted, after saving the state, when a process requests a stop, and Diverged when a loss or gradient
        is not finite.
        """
        self.resume()
        self.observers.on_rows(self.state.curve)
        self.observers.on_samples(self.table_of_samples())
        try:
            self.finish_row()  # a training that was stopped in a validation resumes with it
            while not (self.state.step == self.config.max_steps or self.state.stopped_early):
                self.make_update()
                self.finish_row()
        except Stopped:
            self.interrupt()
        if self.world.is_leader and not self.state.end:
            self.state.end = True
            self.store.write(self.state)
        self.world.wait()  # then all processes may read the last state
        return self.state

    def make_update(self) -> None:
        """Make the next update."""
        update = self.trainer.update(self.state.step + 1, self.observers.stop_requested)
        self.state.step += 1
        if self.environment not in self.state.environments:
            self.state.environments.append(self.environment)
        self.unread.append(update)
        if self.state.step % self.config.log_every == 0 or self.world.device.type == "cpu":  # reading waits for a GPU
            self.read_losses()
        self.observers.on_update(self.state.step, update)

    def finish_row(self) -> None:
        """Add the row of this step to the curve, if one is due. At multiples of save_every, validate and save."""
        state, step = self.state, self.state.step
        if not step or step % self.config.log_every or (state.curve and state.curve[-1]["step"] == step):
            return
        validates = step % self.config.save_every == 0
        if validates:
            scores = self.validate()
            lines = samples(self.trainer, self.valid, self.observers.stop_requested)
            # Both or neither: a state that was saved between them would have a validation without samples.
            state.validations[str(step)], state.samples[str(step)] = scores, lines
        row = add_row(state, step, self.config, self.trainer.rate)
        if validates:
            self.save()
        self.observers.on_rows([row])
        if validates:
            self.observers.on_samples(self.table_of_samples())

    def validate(self) -> dict[str, float]:
        """The validation after this step: loss, and bleu if best_by is bleu. Raises Diverged if it is not finite."""
        loss = valid_loss(self.trainer, self.observers.stop_requested)
        if not math.isfinite(loss):
            raise Diverged(
                f"Update {self.state.step}: valid_loss={loss} is not finite. This update was not saved. {ADVICE}."
            )
        if self.config.best_by == "loss":
            return {"loss": loss}
        return {"loss": loss, "bleu": valid_bleu(self.trainer, self.valid, self.observers.stop_requested)}

    def table_of_samples(self) -> str:
        """The samples of the state as CSV."""
        lengths = self.trainer.valid_pairs.source_lengths
        return table(self.state.samples, lengths, self.valid, self.config.save_every)

    def read_losses(self) -> None:
        """Move the losses of the updates in `unread` to the state.

        Raises Diverged for the first of them whose loss or gradient norm is not finite.
        """
        if not self.unread:
            return
        losses = torch.stack([update.loss for update in self.unread]).tolist()
        norms = torch.stack([update.gradient_norm for update in self.unread]).tolist()
        for loss, norm, update in zip(losses, norms, self.unread, strict=True):
            if not math.isfinite(loss + norm):
                raise self.divergence(len(self.state.losses) + 1)
            self.state.losses.append(loss)
            self.state.tokens.append(update.tokens)
        self.unread.clear()

    def divergence(self, step: int) -> Diverged:
        """The exception for an update that is not finite. The leader writes its line numbers to diverged.json."""
        pairs = self.trainer.train_pairs
        lines = np.sort(pairs.lines[self.trainer.batches[step]]).tolist()
        path = self.store.folder / "diverged.json"
        if self.world.is_leader:
            write_json(path, {"update": step, "train_lines": lines})
        more = f" and {len(lines) - 8} more, see {path}" if lines[8:] else ""
        return Diverged(
            f"Update {step}: the loss or its gradient is not finite ({pairs.name_lines('train', lines[:8])}{more}). "
            f"This update was not saved. {ADVICE}, and check these lines."
        )

    def save(self) -> None:
        """Save the state: the leader writes it."""
        if self.world.is_leader:
            self.store.save(self.state, *self.trainer.tensors())
        self.store.last_step = self.state.step  # all processes must know, or only some would save this state again

    def interrupt(self) -> NoReturn:
        """Save the state, unless it is the newest one on the disk already, and raise Interrupted."""
        self.read_losses()
        if not self.state.step:
            raise Interrupted("Training stopped before its first update. Run the same command again to start.")
        if self.store.last_step != self.state.step:
            self.save()
        self.world.wait()  # the end of a process makes torchrun end the others, so all wait for the state
        raise Interrupted(
            f"Training stopped after update {self.state.step}. Its state is saved. Run the same command again to "
            "resume."
        )

    def resume(self) -> None:
        """Restore the newest state that this training would have, on all processes; an empty one if none is left."""
        fields = vars(self.newest_usable()) if self.world.is_leader else None
        self.state = state = TrainingState(**self.world.broadcast(fields))
        if state.step:  # processes on other machines do not have the leader's folder, so its tensors are sent
            parts = self.store.load(state) if self.world.is_leader else ({}, {})
            self.store.last_step = state.step
            weights, optimiser = map(self.world.tensors_from_leader, parts)
            self.trainer.restore(weights, optimiser)
            state.end = state.end and (state.step == self.config.max_steps or state.stopped_early)

    def newest_usable(self) -> TrainingState:
        """The newest state that a training with these settings would have.

        Prints why a newer one, damaged or made with other settings, cannot be used.
        """
        why_not = ""
        damaged: list[Path] = []
        for state in self.store.states(self.config.max_steps, damaged):
            try:
                replay(state, self.config, self.trainer.rate)
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
