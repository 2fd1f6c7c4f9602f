"""What surrounds the updates of a training: remarks before them, progress, the MLflow run, and signals that stop it."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol, SupportsFloat

from tqdm import tqdm

from pipeline.training.identity import changed_since
from pipeline.training.job import TrainingJob
from pipeline.workflow.inputs import check_inputs
from transformer.evaluation.bleu import bleu_tokenizer
from transformer.training.batches import idle_remark
from transformer.training.loop import Interrupted, Observers
from transformer.training.train_step import Trainer


@contextmanager
def make_observers(
    training: TrainingJob, trainer: Trainer, live_run: AbstractContextManager[LiveCurve] | None = None
) -> Iterator[Observers]:
    """Yield the observers of a training in this process, for the block that trains.

    Raises Mistake if what the trainer was built from changed since the stage began.
    live_run: the MLflow run that gets the curve; the leader sends it. On SIGTERM or SIGINT the block raises
    Interrupted, after it has saved the state of the last update; SystemExit with 128 + the signal is raised here.
    """
    check_inputs()
    leads = trainer.world.is_leader
    remarks = list(remarks_on(training, trainer)) if leads else []
    with stop_signals() as signals, live_run if live_run and leads else nullcontext() as tracked:
        progress = Progress(training.max_steps, leads, tracked)
        for line in remarks:
            progress.say(line)
        try:
            yield Observers(
                on_rows=progress.show,
                on_update=lambda step, update: progress.count_update(step, update.tokens, update.gradient_norm),
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


def remarks_on(training: TrainingJob, trainer: Trainer) -> Iterator[str]:
    """The messages to print before the first update, one line each."""
    config, folder = training.config, training.folder
    if not list(folder.glob("state-*.json")) and (changed := changed_since(folder, training.identity)):
        yield f"Training starts anew: {changed}."
    if config.precision == "bfloat16" and trainer.model.compute is None:
        yield "This machine has no instructions for bfloat16. Training computes in float32, which is faster here."
    if config.best_by == "bleu" and (remark := bleu_tokenizer(training.target_language)[1]):
        yield remark
    if idle := idle_remark(trainer.batches, trainer.world.size, config.device_tokens, training.corpus["max_length"]):
        yield idle
    warmup, max_steps = config.warmup, training.max_steps
    name = "back_translation_steps" if training.backwards else "max_steps"
    if warmup > max_steps:
        yield (
            f"warmup={warmup} is longer than {name}={max_steps}. The learning rate still rises when training "
            f"ends, at {100 * max_steps / warmup:.0f}% of its peak, so the model learns little. Lower warmup or "
            f"raise {name}."
        )


class LiveCurve(Protocol):
    """What gets the curve and the samples of a training while it runs: its MLflow run."""

    def log_curve(self, rows: Sequence[Mapping[str, float | None]]) -> None: ...

    def log_samples(self, text: str) -> None: ...


class Progress:
    """A bar on a terminal, else (logs, CI) one line per validation. Also sends the curve to the training's run.

    visible: whether to print; only the leading process does. tracked: the run; None: not tracked.
    """

    def __init__(self, max_steps: int, visible: bool, tracked: LiveCurve | None):
        self._bar = tqdm(total=max_steps, unit="step", desc="train", disable=None if visible else True, leave=False)
        self._visible, self._max_steps, self._tracked = visible, max_steps, tracked
        self._tokens, self._since = 0, time.perf_counter()
        self._start: tuple[float, int] | None = None  # time and step of the first row
        self._norm: SupportsFloat | None = None  # of the newest gradient; reading it waits for a GPU
        self._resumed_at: float | None = None  # the step of the last row that a resumed training starts with

    def count_update(self, step: int, tokens: int, gradient_norm: SupportsFloat) -> None:
        """Count an update over `tokens` target tokens."""
        self._say_resumed(step - 1)
        self._tokens += tokens
        self._norm = gradient_norm
        self._bar.update(step - self._bar.n)

    def show(self, rows: Sequence[Mapping[str, float | None]]) -> None:
        """Log new rows of the curve and print the last one."""
        if self._norm is None:  # the rows that a resumed training starts with
            if self._tracked:
                self._tracked.log_curve(rows)
            self._resumed_at = rows[-1]["step"] if rows else None
            return
        row, now = rows[-1], time.perf_counter()
        step, seconds = int(row["step"] or 0), now - self._since
        speed = self._tokens / seconds  # target tokens/s since the last row
        self._tokens, self._since = 0, now
        if self._tracked:
            self._tracked.log_curve([{**row, "tokens_per_second": speed, "gradient_norm": float(self._norm)}])
        self._start = self._start or (now, step)
        line = f"loss {row['train_loss']:.3f} · rate {row['learning_rate']:.2e} · {speed:,.0f} tokens/s"
        if row["valid_loss"] is not None:
            line += f" · valid {row['valid_loss']:.4f}"
        if row.get("valid_bleu") is not None:
            line += f" · BLEU {row['valid_bleu']:.1f}"
        self._bar.set_postfix_str(line)
        if self._visible and self._bar.disable and row["valid_loss"] is not None:
            print(f"update {step} of {self._max_steps} · {line}{self._time_left(now, step)}", flush=True)

    def show_samples(self, text: str) -> None:
        """Send the samples, as CSV, to the training's run."""
        if self._tracked:
            self._tracked.log_samples(text)

    def _say_resumed(self, step: float | None) -> None:
        """Print once that the training resumes after update `step`."""
        if self._resumed_at is not None and self._visible:
            print(f"Resuming after update {step}.", flush=True)
        self._resumed_at = None

    def _time_left(self, now: float, step: int) -> str:
        """The time left, at the speed since the first row, as h:mm:ss after a separator; "" at the first row."""
        since, first = self._start or (now, step)
        if step == first:
            return ""
        seconds = round((now - since) / (step - first) * (self._max_steps - step))
        return f" · {seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d} left"

    def say(self, line: str) -> None:
        """Print a line on standard error, in the leading process only."""
        if self._visible:
            print(line, file=sys.stderr)

    def close(self) -> None:
        """Close the bar."""
        self._say_resumed(self._resumed_at)  # if there was no update left
        self._bar.close()
