"""Called by stages: write the record of a training or of a scored configuration, and start sending it.

`train_key` identifies a training (a hash of its knobs, code and ids), `config_key` a scored configuration. Stages find
a record again by these, so a stage that is repeated makes no second run, and a training that DVC took from its cache
still gets one. Errors of MLflow or of the disk are printed and fail no stage.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.tracking import costs
from pipeline.tracking.record import (
    COMPARED,
    FAILED,
    FINISHED,
    KILLED,
    ORIGIN,
    Record,
    is_origin,
    record_of,
    records,
)
from pipeline.tracking.run import Curve, Params, now, who
from pipeline.tracking.sender import Sender, give_up
from pipeline.tracking.store import address
from pipeline.tracking.system_metrics import Monitor, machine_monitors

SAMPLES = "samples.csv"  # the file of a run with translations of a few validation sentences at each validation
PATCH = "uncommitted.patch"  # the file of a run with the edits that were in no commit
TRAINING_TIMEOUT = 10  # seconds that a training waits for the store at its end
STAGE_TIMEOUT = 30  # seconds that any other stage waits for the store at its end
MONITOR_INTERVAL = 10  # seconds between two measurements of the machine's load


@dataclass(frozen=True)
class Configuration:
    """A scored configuration, for its run.

    seeds_key: the same for configurations that differ only in the seed; "": not known. curve: the rows of
    reports/training.csv. target_tokens: that the training saw. tags: with those of ORIGIN, which say where these
    results come from. datasets: as in TrackedRun.log_datasets. texts: name of a file of the run -> its content.
    """

    params: Params
    train_key: str
    config_key: str
    curve: Curve
    scores: Mapping[str, float]
    target_tokens: int
    tags: Mapping[str, str]
    seeds_key: str = ""
    datasets: Iterable[Mapping[str, str | int]] = ()
    texts: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of its run."""
        return self.tags.get("DVC_EXP_NAME") or f"{self.params.get('corpus')} {self.config_key[:7]}"


class TrainingRun:
    """The run of a training: RUNNING inside `with` and until `record`; KILLED (SIGTERM, Ctrl-C) or FAILED otherwise.

    A run of the same train_key and params that was killed or failed is continued. Enter in one process only, under the
    training's own lock. updates_key: equal for trainings that differ only in length. back_key: train_key of the model
    that translated back; its curve is added to this run.
    """

    def __init__(
        self,
        root: Path,
        params: Params,
        train_key: str,
        tags: Mapping[str, str],
        updates_key: str = "",
        back_key: str = "",
    ) -> None:
        self.root, self.params, self.train_key, self.back_key = root, dict(params), train_key, back_key
        self.tags, self.updates_key = {**who(), **tags}, updates_key
        self.record = record_of(root, train_key, params)
        self.sender: Sender | None = None
        self.step, self.monitors = 0, list[Monitor]()
        self.measured_at: float | None = None  # when the machine was last measured; None: never

    def __enter__(self) -> TrainingRun:
        name = os.environ.get("DVC_EXP_NAME") or f"{self.params.get('corpus')} {self.train_key[:7]}"
        try:
            self.record.open(
                name=name,
                params=self.params,
                train_key=self.train_key,
                updates_key=self.updates_key,
                back_key=self.back_key,
                tags=self.tags,
                address=address(),
            )
            self.record.add_rows(costs.back_rows(self.root, self.back_key, self.params))
            self.sender = Sender(self.root, self.record, self._measure)
        except OSError as error:
            give_up(error)
        return self

    def log_curve(self, rows: Curve) -> None:
        """Log rows of the curve. Points that were logged before are skipped, so the whole curve may be logged again."""
        rows = list(rows)
        if self.sender and rows:
            self.step = int(rows[-1]["step"] or 0)
            if keep_rows(self.record, rows):
                self.sender.notify()
            else:
                self.sender = None

    def log_samples(self, text: str) -> None:
        """Replace the file of the run with the samples of its training, in CSV: MLflow's page shows it as a table."""
        if self.sender:
            try:
                self.record.write_files({SAMPLES: text})
                self.sender.notify()
            except OSError as error:
                give_up(error)
                self.sender = None

    def _measure(self, last: bool) -> None:
        """Add a row with the load of the machine every MONITOR_INTERVAL seconds, and at the end. In Sender's thread."""
        if self.measured_at is None:
            self.monitors, self.measured_at = machine_monitors(), time.monotonic()
        if last or time.monotonic() > self.measured_at + MONITOR_INTERVAL:
            self.measured_at = time.monotonic()
            found = [item for monitor in self.monitors for item in monitor.measure().items()]
            self.record.add_rows(
                [{"step": self.step, "time": now(), **{f"system/{name}": value for name, value in found}}]
            )

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self.sender is None:
            return
        killed = isinstance(error, KeyboardInterrupt) or (isinstance(error, SystemExit) and error.code in (130, 143))
        try:
            with self.record.change() as run:
                if "config_key" not in run and error is None:
                    run |= {"trained": now(), "stage": "average"}  # the next one
                elif "config_key" not in run:
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

    def __exit__(self, *error: object) -> None:
        pass

    def log_curve(self, rows: Curve) -> None:
        """Keep rows of the curve. The whole curve may be given again."""
        keep_rows(self.record, rows)

    def log_samples(self, text: str) -> None:
        """Nothing: the run that has this curve shows the samples of its own model."""


def keep_rows(record: Record, rows: Curve) -> bool:
    """Add rows of now to a record. Returns False, and prints why, if the disk refuses them."""
    try:
        record.add_rows([{**row, "time": now()} for row in rows])
    except OSError as error:
        give_up(error)
        return False
    return True


def record_configuration(root: Path, configuration: Configuration) -> bool:
    """Write a scored configuration to its record and send it; returns whether the store has it when this returns."""
    try:
        record = write_configuration(root, configuration)
        record.forget_sent()  # a run that was deleted is made again
        return Sender(root, record).close(STAGE_TIMEOUT)
    except OSError as error:
        give_up(error)
        return False


def is_recorded(root: Path, configuration: Configuration) -> bool:
    """Whether this clone has a record of a configuration."""
    record = record_of(root, configuration.train_key, configuration.params, configuration.config_key)
    return record.read().get("config_key") == configuration.config_key


def write_configuration(root: Path, configuration: Configuration, pulled: bool = False) -> Record:
    """Write a scored configuration to its record, which is returned. Raises OSError.

    If it was recorded before, the user, commit and environment of the first recording stay, and its comparison with a
    baseline; this one is added to `recordings`. pulled: whether no stage of this clone computed it.
    """
    record = record_of(root, configuration.train_key, configuration.params, configuration.config_key)
    again = "config_key" in record.read()
    record.write_files({name: text for name, text in configuration.texts.items() if not (again and name == PATCH)})
    record.add_rows(configuration.curve)
    with record.change() as run:
        if not again:
            run |= {
                "name": configuration.name,
                "params": dict(configuration.params),
                "train_key": configuration.train_key,
                "config_key": configuration.config_key,
            }
            run.setdefault("start", now())
        old_tags, old_scores, recordings = run.get("tags", {}), run.get("scores", {}), run.get("recordings", [])
        first_tags = {key: old_tags[key] for key in old_tags if again and is_origin(key)}
        scores = {key: value for key, value in configuration.scores.items() if not (again and key in COMPARED)}
        recording = {key: str(tag) for key, tag in configuration.tags.items() if key in ORIGIN}
        run |= {
            "address": address(),
            "status": FINISHED,
            "end": run.get("trained") or run.get("end") or run["start"],
            "seeds_key": configuration.seeds_key,
            "tags": {**old_tags, **configuration.tags, **first_tags},
            "scores": {**scores, **{key: old_scores[key] for key in COMPARED if key in old_scores}},
            "datasets": list(configuration.datasets),
            "recordings": recordings if recording in recordings else [*recordings, recording],
        }
        run.pop("incomplete", None)
        run["pulled"] = pulled
        others = [one for one in records(root) if one.folder != record.folder]
        run["costs"], resumed = costs.of_record(record, run, others, configuration.target_tokens)
        if resumed:
            run["tags"]["updates_from"] = resumed
    return record
