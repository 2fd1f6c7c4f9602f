"""Who writes what into MLflow: one row per configuration, found by what was computed.

`train_key` names a training (its knobs, code, ids), `config_key` a scored configuration. `train` logs live to a row of
its train_key, `score` and `register` claim that row for its config_key, and no run id is stored. So a stage that DVC
took from its cache, which logs nothing, still gets its row, and a repeated one no second.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from transformer.tracking.outbox import Event, Outbox
from transformer.tracking.run import Curve, Params, TrackedRun, now
from transformer.tracking.store import Store, connect
from transformer.tracking.system_metrics import Monitor, machine_monitors

TRAINING_TIMEOUT = 10  # seconds that a training waits for the store at its end
STAGE_TIMEOUT = 30  # seconds that a stage waits which has nothing else to do
MONITOR_INTERVAL = 10  # seconds between two looks at the machine


class TrainingRun:
    """The row of a training while it runs: RUNNING inside `with`, then FINISHED, KILLED (SIGTERM, Ctrl-C) or FAILED.

    Continues, under its id, the row of the same train_key and params that a killed or failed process left. A row with
    other params is left alone: it is still to be scored. Enter in one process only, under the training's own lock.
    """

    def __init__(self, root: Path, params: Params, train_key: str, tags: Mapping[str, str]) -> None:
        self.root, self.params, self.train_key, self.tags = root, dict(params), train_key, dict(tags)

    def __enter__(self) -> TrainingRun:
        self.outbox = Outbox(self.root, partial(Recorder, self.root), journal=True)
        name = os.environ.get("DVC_EXP_NAME") or f"{self.params.get('corpus')} {self.train_key[:7]}"
        self.outbox.post("train", params=self.params, train_key=self.train_key, name=name, tags=self.tags, time=now())
        return self

    def log_curve(self, rows: Curve) -> None:
        """Log rows of the curve; steps that are there already are skipped, so the whole curve may be replayed."""
        if rows := [{**row, "time": now()} for row in rows]:
            self.outbox.post("curve", rows=rows)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        killed = isinstance(error, KeyboardInterrupt) or (isinstance(error, SystemExit) and error.code in (130, 143))
        self.outbox.post("end", status="FINISHED" if error is None else "KILLED" if killed else "FAILED", time=now())
        self.outbox.close(TRAINING_TIMEOUT)


def record_configuration(root: Path, configuration: Mapping[str, Any]) -> bool:
    """Write the run of a configuration (Recorder._configuration says what it holds); whether it is stored."""
    outbox = Outbox(root, partial(Recorder, root))
    outbox.post("configuration", **configuration)
    return outbox.close(STAGE_TIMEOUT)


class Recorder:
    """Writes the events of one process into the store, in order. Each act may be written again.

    keep: keeps an act in the journal; given for a training that runs now, so that the load of the machine is its own.
    """

    def __init__(self, root: Path, keep: Callable[..., None] | None = None) -> None:
        self.root, self.keep = root, keep
        self.run: TrackedRun | None = None  # of the training
        self.ended, self.step = True, 0
        self.monitors: list[Monitor] = []
        self.measured_at: float | None = None  # when the machine was last looked at

    def send(self, events: list[Event]) -> None:
        """Write some events. Raises store errors; then all of them may be told again."""
        store = connect(self.root)
        for kind, group in groupby(events, key=lambda event: event["event"]):
            if kind == "curve":  # many rows are one message
                self._curve([row for event in group for row in event["rows"]])
            else:
                for event in group:
                    getattr(self, f"_{kind}")(store, **{key: value for key, value in event.items() if key != "event"})

    def mark_killed(self) -> None:
        """The process was killed."""
        if self.run is not None and not self.ended:
            self.run.client.set_terminated(self.run.id, "KILLED")

    def _train(self, store: Store, params: Params, train_key: str, name: str, tags: dict, time: int) -> None:
        """Open the row of a training: an unclaimed one, else one that has its params, else a new one."""
        with store.lock:
            rows = [row for row in store.runs(train_key) if row.fits(params)]
            rows.sort(key=lambda row: ("config_key" in row.tags, row.info.status == "FINISHED"))  # first unclaimed
            self.run = rows[0] if rows else store.create_run(name, {"train_key": train_key}, time)
            self.ended = False
            store.client.update_run(self.run.id, status="RUNNING")
            self.run.log(params, (), {}, {**tags, "trained_here": "true"})

    def _curve(self, rows: Curve) -> None:
        """Add points to the open row, and now and then how busy the machine is."""
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
        """How busy the machine is at this step."""
        assert self.keep
        self.measured_at = time.monotonic()
        found = [item for monitor in self.monitors for item in monitor.measure().items()]
        row = {"step": self.step, "time": now(), **{f"system/{name}": value for name, value in found}}
        self.keep("curve", rows=[row])
        return row

    def _end(self, store: Store, status: str, time: int) -> None:
        """Close the row of the training."""
        if self.run is not None:
            if self.measured_at is not None:  # also a training of seconds has looked once
                self.run.log({}, [self._measure()], {}, {})
            store.client.set_terminated(self.run.id, status, end_time=time)
            self.ended = True

    def _configuration(
        self,
        store: Store,
        params: Params,
        train_key: str,
        config_key: str,
        curve: Curve,
        scores: Mapping[str, float],
        target_tokens: int,
        tags: Mapping[str, str],
        datasets: Iterable[Mapping[str, str | int]] = (),
        texts: Mapping[str, str] | None = None,  # file name in the row -> what it holds
        rebuild: bool = False,  # True: what an existing row says stays, but for what it lacks
    ) -> None:
        """Write the one row of a configuration: the one it has, else a free one of its training, else a new one.

        A rebuild leaves alone what somebody put into the trash.
        """
        found = store.all_runs(f"tags.config_key = '{config_key}'") if rebuild else ()
        if any(run.info.lifecycle_stage == "deleted" for run in found):
            return
        keys = {"train_key": train_key, "config_key": config_key}
        name = tags.get("DVC_EXP_NAME") or f"{params.get('corpus')} {config_key[:7]}"
        with store.lock:
            training_runs = store.runs(train_key)
            rows = [row for row in training_runs if row.tags.get("config_key", config_key) == config_key]
            rows = [row for row in rows if "config_key" in row.tags or row.fits(params)]
            rows.sort(key=lambda row: ("config_key" not in row.tags, row.info.status != "FINISHED"))
            row = rows[0] if rows else store.create_run(name, keys)
            claimed = "config_key" in row.tags
            if not claimed:  # later the name stays: somebody may have typed one in the page
                store.client.update_run(row.id, name=name)
            if rebuild and claimed:
                tags = {key: value for key, value in tags.items() if key not in row.tags}
                scores = {key: value for key, value in scores.items() if key not in row.data.metrics}
            row.log(params, curve, {**scores, **costs(row, training_runs, target_tokens)}, {**tags, **keys})
            # The end stays that of the training, or an update next week would make it the longest of the table.
            if row.info.status != "FINISHED" or not rows:
                store.client.set_terminated(row.id, "FINISHED", end_time=row.info.end_time)
        row.log_datasets(datasets)
        if texts and store.takes_artifacts:
            row.log_texts(texts)


def costs(row: TrackedRun, training_runs: Iterable[TrackedRun], target_tokens: int) -> dict[str, float]:
    """What training this row's model cost, and what the cache saved: seconds of the wall, and target tokens."""
    trained_here = "trained_here" in row.tags
    trained = [row] if trained_here else [one for one in training_runs if "trained_here" in one.tags]
    seconds = trained[0].total("seconds") if trained else None
    known = {"train_tokens": target_tokens} | ({} if seconds is None else {"train_seconds": seconds})
    return {f"{key}{suffix}": value if suffix == ("" if trained_here else "_saved") else 0
            for key, value in known.items() for suffix in ("", "_saved")}  # fmt: skip
