"""Writes trainings and scored configurations to MLflow: one run per configuration.

`train_key` identifies a training (a hash of its knobs, code and ids), `config_key` a scored configuration. The stage
`train` logs to a run with its train_key while it trains. The stage `record` finds that run by its train_key and
adds the config_key. No run id is stored. So a training that DVC took from its cache, and that logged nothing, still
gets a run, and a stage that is repeated does not get a second one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from transformer.tracking.configuration import Configuration, write_configuration
from transformer.tracking.outbox import Event, Outbox
from transformer.tracking.run import Curve, Params, TrackedRun, now, who
from transformer.tracking.store import Store, connect
from transformer.tracking.system_metrics import Monitor, machine_monitors

TRAINING_TIMEOUT = 10  # seconds that a training waits for the store at its end
STAGE_TIMEOUT = 30  # seconds that any other stage waits for the store at its end
MONITOR_INTERVAL = 10  # seconds between two measurements of the machine's load


class TrainingRun:
    """The run of a training: RUNNING inside `with`, then FINISHED, KILLED (SIGTERM, Ctrl-C) or FAILED.

    A run of the same train_key and params that a killed or failed process left is continued under its id. A run of the
    same train_key with other params is not touched: it still waits for its scores. Enter in one process only, under
    the training's own lock.
    """

    def __init__(self, root: Path, params: Params, train_key: str, tags: Mapping[str, str]) -> None:
        self.root, self.params, self.train_key, self.tags = root, dict(params), train_key, dict(tags)

    def __enter__(self) -> TrainingRun:
        self.outbox = Outbox(self.root, partial(Recorder, self.root), journal=True)
        name = os.environ.get("DVC_EXP_NAME") or f"{self.params.get('corpus')} {self.train_key[:7]}"
        self.outbox.post("train", params=self.params, train_key=self.train_key, name=name, tags=self.tags, time=now())
        return self

    def log_curve(self, rows: Curve) -> None:
        """Log rows of the curve. Steps that were logged before are skipped, so the whole curve may be logged again."""
        if rows := [{**row, "time": now()} for row in rows]:
            self.outbox.post("curve", rows=rows)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        killed = isinstance(error, KeyboardInterrupt) or (isinstance(error, SystemExit) and error.code in (130, 143))
        self.outbox.post("end", status="FINISHED" if error is None else "KILLED" if killed else "FAILED", time=now())
        self.outbox.close(TRAINING_TIMEOUT)


def record_configuration(root: Path, configuration: Mapping[str, Any]) -> bool:
    """Write a configuration (the fields of Configuration) to its run; returns whether the store already has it."""
    outbox = Outbox(root, partial(Recorder, root))
    outbox.post("configuration", **configuration)
    return outbox.close(STAGE_TIMEOUT)


class Recorder:
    """Writes the events of one process to the store, in order. An event that is written twice changes nothing.

    keep: writes an event to the process's own outbox file. It is given for a training that runs now, and only then is
    the load of the machine measured: events of an earlier process came from another moment.
    """

    def __init__(self, root: Path, keep: Callable[..., None] | None = None) -> None:
        self.root, self.keep = root, keep
        self.run: TrackedRun | None = None  # of the training
        self.ended, self.step = True, 0
        self.monitors: list[Monitor] = []
        self.measured_at: float | None = None  # when the machine was last measured; None: never

    def send(self, events: list[Event]) -> None:
        """Write events to the store. Raises store errors; then all these events may be sent again."""
        store = connect(self.root)
        for kind, group in groupby(events, key=lambda event: event["event"]):
            if kind == "curve":  # the rows of several events go in one message
                self._curve([row for event in group for row in event["rows"]])
            else:
                for event in group:
                    getattr(self, f"_{kind}")(store, **{key: value for key, value in event.items() if key != "event"})

    def mark_killed(self) -> None:
        """Mark the run as KILLED if the process ended without the event "end"."""
        if self.run is not None and not self.ended:
            self.run.client.set_terminated(self.run.id, "KILLED")

    def _train(self, store: Store, params: Params, train_key: str, name: str, tags: dict, time: int) -> None:
        """Open the run of a training: an unclaimed run with fitting params, else a claimed one, else a new one.

        Another clone may train the same at the same time, so only runs of this clone are continued.
        """
        with store.lock:
            runs = [run for run in store.runs(train_key) if run.fits(params) and run.of_clone(store.clone)]
            runs.sort(key=lambda run: ("config_key" in run.tags, run.info.status == "FINISHED"))  # unclaimed first
            self.run = runs[0] if runs else store.create_run(name, {"train_key": train_key, "clone": store.clone}, time)
            self.ended = False
            store.client.update_run(self.run.id, status="RUNNING")
            first = {**who(), **tags}  # who began it stays
            self.run.log(params, (), {}, {key: tag for key, tag in first.items() if key not in self.run.tags})

    def _curve(self, rows: Curve) -> None:
        """Add rows to the open run and, every MONITOR_INTERVAL seconds, the load of the machine."""
        if self.run is None:
            return
        rows = list(rows)
        self.step = int(rows[-1]["step"] or 0)
        if self.keep and self.measured_at is None:
            self.monitors, self.measured_at = machine_monitors(), time.monotonic()
        elif self.measured_at is not None and time.monotonic() > self.measured_at + MONITOR_INTERVAL:
            rows.append(self._measure())
        self.run.log({}, rows, {}, {})

    def _measure(self) -> dict[str, float]:
        """The load of the machine at this step, as a row of the curve."""
        assert self.keep
        self.measured_at = time.monotonic()
        found = [item for monitor in self.monitors for item in monitor.measure().items()]
        row = {"step": self.step, "time": now(), **{f"system/{name}": value for name, value in found}}
        self.keep("curve", rows=[row])
        return row

    def _end(self, store: Store, status: str, time: int) -> None:
        """Close the run of the training."""
        if self.run is not None:
            if self.measured_at is not None:  # so that a training of a few seconds has one measurement too
                self.run.log({}, [self._measure()], {}, {})
            store.client.set_terminated(self.run.id, status, end_time=time)
            self.ended = True

    def _configuration(self, store: Store, **fields: Any) -> None:
        """Write the run of a configuration. fields: those of Configuration."""
        write_configuration(store, Configuration(**fields))
