"""The live curve: what a training sends to MLflow while it runs.

Best effort: a thread of its own sends it, the first failure of a store ends it, and `record` writes what is missing.
MLflow's own asynchronous logging does not do: importing MLflow alone would take 0.8 s of the training's thread.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from pipeline.tracking.open_runs import PROCESS, close_abandoned, has, open_runs, owner, run_tags
from pipeline.tracking.store import SAMPLES, WAIT, Row, Store, connect, now, reason, store_errors, who
from pipeline.workflow.stage import corpus_name
from transformer.files import chunks

if TYPE_CHECKING:
    from mlflow.entities import Metric, Run
    from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

# Seconds between two messages. Rows added in between share one message, so that the training is disturbed less.
PAUSE = 5
ROWS = 100  # of a message, which may hold 1,000 points
END = object()  # the last thing in the queue


class LiveRun:
    """The MLflow run of a training: RUNNING until `record`, or KILLED (SIGTERM, Ctrl-C) or FAILED at the end of `with`.

    If this clone has a killed or failed run with the same train_key and params, that run continues. If the
    configuration already has a finished run, nothing is sent. Enter in one process only, under the training's own lock.
    tags: more tags.
    """

    def __init__(self, root: Path, params: Mapping[str, object], train_key: str, tags: Mapping[str, str]) -> None:
        self.root, self.params, self.train_key, self.tags = root, dict(params), train_key, dict(tags)
        self.status, self._warned = "", False  # status: KILLED or FAILED at the end; "": as it is
        self._queue, self._ended = SimpleQueue[Any](), threading.Event()
        self._thread = threading.Thread(target=self._run, name="tracking", daemon=True)

    def __enter__(self) -> LiveRun:
        self._thread.start()
        return self

    def log_curve(self, rows: Iterable[Row]) -> None:
        """Send rows of the curve. Rows up to the last step that the run has are skipped."""
        self._queue.put([{**row, "time": now()} for row in rows])

    def log_samples(self, text: str) -> None:
        """Replace the file of the run with the samples of its training, in CSV: MLflow's page shows it as a table."""
        self._queue.put(text)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            code = error.code if isinstance(error, SystemExit) else None
            self.status = "KILLED" if isinstance(error, KeyboardInterrupt) or code in (130, 143) else "FAILED"
        self._queue.put(END)
        self._ended.set()
        self._thread.join(WAIT)
        if self._thread.is_alive():
            self._warn(f"MLflow has not answered within {WAIT:g} s")

    def _run(self) -> None:
        """The thread: find or make the run, then send what is added until the end."""
        try:
            store = connect(self.root)
            if run := self._open_run(store):
                monitor = system_monitor(store, run)
                try:
                    self._send(store, run)
                finally:
                    monitor.finish()
                if self.status:
                    store.client.set_terminated(run.info.run_id, self.status)
        except store_errors() as error:
            self._warn(reason(error))

    def _open_run(self, store: Store) -> Run | None:
        """The run of this training, RUNNING; None if its configuration has a finished run."""
        from mlflow.entities import Param, RunTag

        close_abandoned(store)
        tags = run_tags(store, self.train_key, self.params)
        same = {"params_key": tags["params_key"]}
        if any("config_key" in run.data.tags and has(run, same) for run in store.runs(self.train_key)):
            return None
        tags |= {**who(), **self.tags, PROCESS: owner()}
        name = os.environ.get("DVC_EXP_NAME") or f"{corpus_name(self.params)} {self.train_key[:7]}"
        runs = open_runs(store, self.train_key, self.params)
        run = runs[0] if runs else store.client.create_run(store.experiment_id, now(), tags, name)
        if run.info.status != "RUNNING":
            store.client.update_run(run.info.run_id, status="RUNNING")
        params = [Param(key, str(value)) for key, value in self.params.items()]
        store.client.log_batch(run.info.run_id, params=params, tags=[RunTag(key, tag) for key, tag in tags.items()])
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
                store.client.log_batch(run_id, metrics_of(part))
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


def metrics_of(rows: Iterable[Row]) -> list[Metric]:
    """The points of rows with a time."""
    from mlflow.entities import Metric

    return [
        Metric(name, float(value), int(row["time"] or 0), int(row["step"] or 0))
        for row in rows
        for name, value in row.items()
        if name not in ("step", "time") and value is not None
    ]


def system_monitor(store: Store, run: Run) -> SystemMetricsMonitor:
    """MLflow's thread that sends load and memory of the machine every ten seconds, started."""
    from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

    monitor = SystemMetricsMonitor(run.info.run_id, tracking_uri=store.uri, resume_logging=True)
    monitor.start()
    return monitor
