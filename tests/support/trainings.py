"""Trainings of the tiny model, and what tests compare of them."""

from __future__ import annotations

from support.tiny import tiny_trainer

from transformer.files import sha256
from transformer.training.checkpoints import CheckpointStore
from transformer.training.loop import Observers, train


def train_tiny(
    folder,
    work,
    keep=2,
    on_rows=lambda rows: None,
    on_update=lambda step, update: None,
    stop_requested=lambda: False,
    on_samples=lambda table: None,
    **update,
):
    """Train the tiny model. Returns the final state and the sha256 of its weights."""
    store, observers = CheckpointStore(work), Observers(on_rows, on_update, stop_requested, on_samples)
    trainer = tiny_trainer(folder, keep=keep, **update)
    state = train(trainer, store, observers=observers)
    return state, sha256(store.weights(state.step))


def outcome(state) -> tuple:
    """The parts of the final state that the stage train writes to its outs."""
    return state.step, state.curve, state.samples, state.checkpoints, state.best_step, state.target_tokens, state.files
