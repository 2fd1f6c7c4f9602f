"""The live curve: what a training sends to MLflow while it runs, and how its run is found again.

Best effort: a thread of its own sends it, the first failure of a store ends it, and `record` writes what is missing.
MLflow's own asynchronous logging does not do: importing MLflow alone would take 0.8 s of the training's thread.
"""

from __future__ import annotations

import getpass
import os
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from pipeline.tracking.labels import SETTINGS, labels
from pipeline.tracking.store import RELATIVE, Store, StoreError, configured_uri, connect, now, store_errors
from pipeline.workflow.stage import corpus_name, error_line
from transformer.files import chunks, content_key, write_text

if TYPE_CHECKING:
    from mlflow.entities import Metric, Run
    from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

# Seconds between two messages. Rows added in between share one message, so that the training is disturbed less.
PAUSE = 5
WAIT = 10  # seconds to wait for a server at the end of a training; a file has no limit
ROWS = 100  # of a message, which may hold 1,000 points
END = object()  # the last thing in the queue
Row = Mapping[str, float | None]  # of a curve: "step", and metrics; None: not measured
SAMPLES = "samples.csv"  # the file of a run with translations of a few validation sentences at each validation
ABSENT = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")  # what MLflow says of an id that it does not have


class LiveRun:
    """The MLflow run of a training.

    Its status is RUNNING; at the end of `with`, KILLED after SIGTERM or Ctrl-C, FAILED after another error. The stage
    `record` sets FINISHED.
    The id of the run is kept beside the states of the training, so a training that was stopped or killed continues its
    run. If that run is FINISHED, nothing is sent: the result was recorded. Enter in one process only, under the
    training's own lock.
    folder: of the training's states, work/train-<key>. tags: more tags.
    """

    def __init__(self, folder: Path, params: Mapping[str, object], train_key: str, tags: Mapping[str, str]) -> None:
        self.root, self.file = folder.parent.parent, run_file(folder, params, train_key)
        self.params, self.tags = dict(params), {**tags, "train_key": train_key}
        self.status, self._warned = "", False  # status: KILLED or FAILED at the end; "": as it is
        self._queue, self._ended = SimpleQueue[Any](), threading.Event()
        self._thread = threading.Thread(target=self._run, name="tracking", daemon=True)

    def __enter__(self) -> LiveRun:
        self._thread.start()
        return self

    def log_curve(self, rows: Iterable[Row]) -> None:
        """Send rows of the curve. Rows up to the last step that the run has are skipped."""
        self._queue.put(list(rows))

    def log_samples(self, text: str) -> None:
        """Replace the file of the run with the samples of its training, in CSV: MLflow's page shows it as a table."""
        self._queue.put(text)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            code = error.code if isinstance(error, SystemExit) else None
            self.status = "KILLED" if isinstance(error, KeyboardInterrupt) or code in (130, 143) else "FAILED"
        self._queue.put(END)
        self._ended.set()
        self._thread.join(None if configured_uri().startswith(RELATIVE) else WAIT)
        if self._thread.is_alive():
            self._warn(f"MLflow has not answered within {WAIT:g} s")

    def _run(self) -> None:
        """The thread: find or make the run, then send what is added until the end."""
        try:
            store = connect(self.root)
            run = continued_run(store, self.file)
            if run is not None and run.info.status == "FINISHED":
                return
            run = self._open(store, run)
            monitor = system_monitor(store, run)
            try:
                self._send(store, run)
            finally:
                monitor.finish()
            if self.status:
                store.client.set_terminated(run.info.run_id, self.status)
        except StoreError as error:
            self._warn(str(error))
        except Exception as error:
            self._warn(error_line(error, "tracking"))

    def _open(self, store: Store, run: Run | None) -> Run:
        """The run to continue or, if that is None, a new one: RUNNING, with the params and tags of this training."""
        from mlflow.entities import Param, RunTag

        tags = {**self.tags, SETTINGS: labels(self.params, self.tags)[SETTINGS]}
        if run is None:
            name = os.environ.get("DVC_EXP_NAME") or f"{corpus_name(self.params)} {self.tags['train_key'][:7]}"
            run = store.client.create_run(store.experiment_id, now(), {**user_tags(), **tags}, name)
            write_text(self.file, run.info.run_id)
        if run.info.status != "RUNNING":
            store.client.update_run(run.info.run_id, status="RUNNING")
        params = [Param(key, str(value)) for key, value in self.params.items()]
        run_tags = [RunTag(key, tag) for key, tag in tags.items()]
        store.client.log_batch(run.info.run_id, params=params, tags=run_tags)
        return run

    def _send(self, store: Store, run: Run) -> None:
        """Send what is in the queue, at most every PAUSE seconds, until its end. A step is in one message."""
        run_id, items = run.info.run_id, list[Any]()
        last = max((point.step for point in store.client.get_metric_history(run_id, "train_loss")), default=-1)
        while END not in items:
            items = [self._queue.get()]
            self._ended.wait(PAUSE)
            while not self._queue.empty():
                items.append(self._queue.get())
            rows = [row for item in items if isinstance(item, list) for row in item if row["step"] > last]
            for part in chunks({row["step"]: row for row in rows}.values(), ROWS):
                store.client.log_batch(run_id, points(run, part))
                last = part[-1]["step"]
            if (texts := [item for item in items if isinstance(item, str)]) and store.takes_artifacts:
                store.client.log_text(run_id, texts[-1], SAMPLES)

    def _warn(self, trouble: str) -> None:
        """Print one line about the first failure."""
        if not self._warned:
            print(
                f"Tracking ended for this stage: {trouble}. Results are not affected. The stage `record` or "
                "`python -m pipeline track` writes the run.",
                file=sys.stderr,
                flush=True,
            )
        self._warned = True


def system_monitor(store: Store, run: Run) -> SystemMetricsMonitor:
    """MLflow's thread that sends load and memory of the machine every ten seconds, started."""
    with store_errors():
        from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

        monitor = SystemMetricsMonitor(run.info.run_id, tracking_uri=store.uri, resume_logging=True)
        monitor.start()
        return monitor


def user_tags() -> dict[str, str]:
    """The tags for MLflow's columns User and Source."""
    try:
        user = os.environ.get("MLFLOW_TRACKING_USERNAME") or getpass.getuser()
    except (KeyError, OSError):  # a container without a user database
        user = str(os.getuid())
    return {"mlflow.user": user, "mlflow.source.name": "dvc", "mlflow.source.type": "PROJECT"}


def run_file(folder: Path, params: Mapping[str, object], train_key: str) -> Path:
    """The file with the id of the MLflow run of a training with these params. folder: of its states.

    Configurations that differ in later knobs share the states.
    """
    return folder / f"run-{content_key(train_key=train_key, params={name: str(params[name]) for name in params})[:16]}"


def run_of_training(store: Store, params: Mapping[str, object], train_key: str) -> Run | None:
    """The run that the training of a result left unfinished in this project, if any."""
    work = store.root / "work"
    runs = [continued_run(store, path) for path in work.glob(f"train-*/{run_file(work, params, train_key).name}")]
    return next((run for run in runs if run is not None and run.info.status != "FINISHED"), None)


def continued_run(store: Store, file: Path) -> Run | None:
    """The run whose id a file has; None without the file, and if the run was deleted or is of another store."""
    if not file.is_file():
        return None
    try:
        run = store.client.get_run(file.read_text(encoding="utf-8"))
    except StoreError as error:
        if error.code in ABSENT:
            return None
        raise
    return None if run.info.lifecycle_stage == "deleted" else run


def points(run: Run, rows: Iterable[Row]) -> list[Metric]:
    """The points of rows of a curve. Their time is the start of the run and a millisecond for each step."""
    from mlflow.entities import Metric

    return [
        Metric(name, float(value), run.info.start_time + int(row["step"] or 0), int(row["step"] or 0))
        for row in rows
        for name, value in row.items()
        if name != "step" and value is not None
    ]
