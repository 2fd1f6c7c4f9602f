"""What surrounds the updates of a training: remarks before them, progress, the MLflow run, and signals that stop it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from pipeline.identity import changed_since
from pipeline.training.job import Training, sharding_requested
from pipeline.training.progress import LiveCurve, Progress
from transformer.evaluation.scores import bleu_tokenizer
from transformer.files import write_json
from transformer.training.batches import idle_remark
from transformer.training.loop import Interrupted, Observers
from transformer.training.train_step import Trainer


@contextmanager
def observing(
    training: Training, trainer: Trainer, live_run: AbstractContextManager[LiveCurve] | None = None
) -> Iterator[Observers]:
    """Yield the observers of a training in this process, for the block that trains.

    live_run: the MLflow run that gets the curve; the leader sends it. On SIGTERM or SIGINT the block raises
    Interrupted, after it has saved the state of the last update; SystemExit with 128 + the signal is raised here.
    """
    leads = trainer.world.is_leader
    remarks = list(remarks_on(training, trainer)) if leads else []
    if leads:
        write_json(training.folder / "identity.json", training.identity)
    with stop_signals() as signals, live_run if live_run and leads else nullcontext() as tracked:
        progress = Progress(training.max_steps, leads, tracked)
        for line in remarks:
            progress.say(line)
        try:
            yield Observers(
                on_rows=progress.show,
                on_update=lambda step, update: progress.updated(step, update.tokens, update.gradient_norm),
                stop_requested=lambda: bool(signals),
                on_samples=progress.show_samples,
            )
        except Interrupted as reason:
            progress.say(str(reason))
            raise SystemExit(128 + (signals or [signal.SIGTERM])[0]) from None
        finally:
            progress.close()


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """While the block runs, SIGTERM and SIGINT do not end this process. Their numbers are appended to the list."""
    seen: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        signal.signal(number, lambda number, frame: seen.append(number))
    try:
        yield seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def remarks_on(training: Training, trainer: Trainer) -> Iterator[str]:
    """The messages to print before the first update, one line each."""
    config, folder = training.config, training.folder
    if not list(folder.glob("state-*.json")) and (changed := changed_since(folder, training.identity)):
        yield f"Training starts anew: {changed}."
    if config.precision == "bfloat16" and trainer.model.compute is None:
        yield "This machine has no instructions for bfloat16. Training computes in float32, which is faster here."
    if config.best_by == "bleu" and (remark := bleu_tokenizer(training.target_language)[1]):
        yield remark
    if sharding_requested() and not trainer.sharded:
        yield "SHARDING=full changes nothing in one process. Set DEVICES, and the devices share the weights."
    if trainer.sharded and config.compile:
        yield "compile=true has no effect with SHARDING=full. The training runs uncompiled."
    if idle := idle_remark(trainer.batches, trainer.world.size, config.device_tokens, training.corpus["max_length"]):
        yield idle
    warmup, max_steps = config.warmup, training.max_steps
    if warmup > max_steps:
        yield (
            f"warmup={warmup} is longer than max_steps={max_steps}. The learning rate still rises when training "
            f"ends, at {100 * max_steps / warmup:.0f}% of its peak, so the model learns little. Lower warmup or "
            "raise max_steps."
        )
