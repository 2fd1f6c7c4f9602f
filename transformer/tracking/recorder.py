"""What stages say to MLflow: the live curve of a training, and the scores of its configuration. It never fails a stage.

`train_key` identifies a training (a hash of its knobs, code and ids), `config_key` a scored configuration. Stages write
a record (record.py) and find it again by these, so a stage that is repeated makes no second run, and a training that
DVC took from its cache still gets one.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformer.tracking import costs
from transformer.tracking.record import FAILED, FINISHED, KILLED, Record, record_of, records
from transformer.tracking.run import Curve, Params, now, who
from transformer.tracking.sender import REMEDY, Sender
from transformer.tracking.store import address, reason
from transformer.tracking.sync import COMPARED, ORIGIN, is_origin
from transformer.tracking.system_metrics import Monitor, machine_monitors

PATCH = "uncommitted.patch"  # the file of a run with the edits that were in no commit
TRAINING_TIMEOUT = 10  # seconds that a training waits for the store at its end
STAGE_TIMEOUT = 30  # seconds that any other stage waits for the store at its end
MONITOR_INTERVAL = 10  # seconds between two measurements of the machine's load


class TrainingRun:
    """The run of a training: RUNNING inside `with` and until `record`; KILLED (SIGTERM, Ctrl-C) or FAILED otherwise.

    A run of the same train_key and params that was killed or failed is continued. Enter in one process only, under the
    training's own lock. updates_key: the key of the states, which trainings of other lengths share. back_key: the
    train_key of the model that translated back, whose curve the run then has too.
    """

    def __init__(self, root: Path, params: Params, train_key: str, tags: Mapping[str, str],
                 updates_key: str = "", back_key: str = "") -> None:  # fmt: skip
        self.root, self.record = root, record_of(root, train_key, params)
        self.fields = {"params": dict(params), "train_key": train_key, "updates_key": updates_key, "back_key": back_key}
        self.tags = {**who(), **tags}
        self.sender: Sender | None = None
        self.step, self.monitors = 0, list[Monitor]()
        self.measured_at: float | None = None  # when the machine was last measured; None: never

    def __enter__(self) -> TrainingRun:
        try:
            with self.record.change() as run:
                if "config_key" not in run:  # a recorded run stays as it is; its updates are computed again
                    corpus, train_key = self.fields["params"].get("corpus"), str(self.fields["train_key"])
                    run["name"] = os.environ.get("DVC_EXP_NAME") or f"{corpus} {train_key[:7]}"
                    run["tags"] = {**self.tags, **run.get("tags", {})}  # who began it stays
                    self.record.reopen(run)
                run |= {**self.fields, "address": address()}
            self.record.add_rows(costs.back_rows(self.root, str(self.fields["back_key"]), self.fields["params"]))
            self.sender = Sender(self.root, self.record, self._measure)
        except OSError as error:
            give_up(error)
        return self

    def log_curve(self, rows: Curve) -> None:
        """Log rows of the curve. Steps that were logged before are skipped, so the whole curve may be logged again."""
        if self.sender and (rows := [{**row, "time": now()} for row in rows]):
            self.step = int(rows[-1]["step"] or 0)
            self._add(rows)
            self.sender.notify()

    def _add(self, rows: Curve) -> None:
        try:
            self.record.add_rows(rows)
        except OSError as error:
            self.sender = None
            give_up(error)

    def _measure(self, last: bool) -> None:
        """Add a row with the load of the machine every MONITOR_INTERVAL seconds, and at the end. In Sender's thread."""
        if self.measured_at is None:
            self.monitors, self.measured_at = machine_monitors(), time.monotonic()
        if last or time.monotonic() > self.measured_at + MONITOR_INTERVAL:
            self.measured_at = time.monotonic()
            found = [item for monitor in self.monitors for item in monitor.measure().items()]
            self._add([{"step": self.step, "time": now(), **{f"system/{name}": value for name, value in found}}])

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self.sender is None:
            return
        killed = isinstance(error, KeyboardInterrupt) or (isinstance(error, SystemExit) and error.code in (130, 143))
        try:
            with self.record.change() as run:
                if "config_key" in run:
                    pass
                elif error is None:
                    run |= {"trained": now(), "stage": "average"}  # the next one
                else:
                    run |= {"status": KILLED if killed else FAILED, "end": now()}
        except OSError as problem:
            give_up(problem)
        self.sender.close(TRAINING_TIMEOUT)


class BackTranslationCurve:
    """The curve of the model that translates back. It is kept until `train` opens the run that it is part of."""

    def __init__(self, root: Path, params: Params, train_key: str) -> None:
        self.record = costs.back_record(root, train_key, params)

    def __enter__(self) -> BackTranslationCurve:
        return self

    def log_curve(self, rows: Curve) -> None:
        """Keep rows of the curve. The whole curve may be given again."""
        try:
            self.record.add_rows([{**row, "time": now()} for row in rows])
        except OSError as error:
            give_up(error)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        pass


def record_configuration(root: Path, contents: Mapping[str, Any]) -> bool:
    """Write a scored configuration to its record and send it; returns whether the store already has it.

    contents: see `write_configuration`.
    """
    try:
        record = record_of(root, contents["train_key"], contents["params"], contents["config_key"])
        write_configuration(root, record, contents)
        return Sender(root, record).close(STAGE_TIMEOUT)
    except OSError as error:
        give_up(error)
        return False


def write_configuration(root: Path, record: Record, contents: Mapping[str, Any]) -> None:
    """Write a scored configuration to a record. Raises OSError.

    contents: params, train_key, config_key; seeds_key: the same for configurations that differ only in the seed; curve:
    the rows of reports/training.csv; scores; target_tokens: that the training saw; tags; recording: where these
    results come from, as tags; datasets: as in TrackedRun.log_datasets; texts: name of a file -> its content.
    """
    train_key, config_key, tags = contents["train_key"], contents["config_key"], contents["tags"]
    again = "config_key" in record.read()  # then what the first recording said of its origin stays
    texts = contents.get("texts", {})
    record.write_files({name: texts[name] for name in texts if not (again and name == PATCH)})
    record.add_rows(contents["curve"])
    with record.change() as run:
        old_tags, old_scores, recordings = run.get("tags", {}), run.get("scores", {}), run.get("recordings", [])
        if not again:
            name = tags.get("DVC_EXP_NAME") or f"{contents['params'].get('corpus')} {config_key[:7]}"
            run |= {"name": name, "params": dict(contents["params"]), "train_key": train_key, "config_key": config_key}
            run.setdefault("start", now())
        first = {key: old_tags[key] for key in old_tags if again and is_origin(key)}
        compared = {key: old_scores[key] for key in COMPARED if key in old_scores}
        scores = {key: value for key, value in contents["scores"].items() if not (again and key in COMPARED)}
        recording = {key: str(tag) for key, tag in tags.items() if key in ORIGIN}
        run |= {
            "address": address(), "status": FINISHED, "end": run.get("trained") or run.get("end") or run["start"],
            "seeds_key": contents.get("seeds_key", ""), "tags": {**old_tags, **tags, **first},
            "scores": {**scores, **compared}, "datasets": list(contents.get("datasets", ())),
            "recordings": recordings if recording in recordings else [*recordings, recording],
        }  # fmt: skip
        run.pop("incomplete", None)
        others = [one for one in costs.sharing(run, records(root)) if one.folder != record.folder]
        run["costs"], resumed = costs.of_record(record, run, others, contents["target_tokens"])
        if resumed:
            run["tags"]["updates_from"] = resumed


def give_up(error: Exception) -> None:
    """Print that this stage is not tracked."""
    print(f"Tracking is off for this stage ({reason(error)}). {REMEDY}", file=sys.stderr, flush=True)
