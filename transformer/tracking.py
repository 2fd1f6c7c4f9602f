"""MLflow: one row per configuration, found by what was computed, and never a reason for a stage to fail.

`train_key` names a training (its knobs, code, ids), `config_key` a scored configuration. `train` logs live to a row of
its train_key, `score` claims that row for its config_key, and no run id is stored. So a stage that DVC took from its
cache, which logs nothing, still gets its row, and a repeated one no second.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from filelock import FileLock

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run

P = ParamSpec("P")
T = TypeVar("T")
Params = Mapping[str, str | int | float | bool]
Curve = Iterable[Mapping[str, float | None]]  # rows of "step" and metrics; None where one was not taken at that step

# What the runs table shows at once. The tag is what the page's "share" button writes, under a name of ours; it is
# undocumented, so mlflow is pinned and a test looks for the words in its pages.
VIEW = "compare"
SCORES = ["bleu", "valid_bleu", "chrf"]
KNOBS = "corpus warmup beam_size lr_factor d_model layers max_steps batch_tokens dropout length_penalty seed"
# By default mlflow waits four minutes for a server that is gone, prints a link per run and phones home.
ENVIRONMENT = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
ENVIRONMENT |= {"MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}
ENVIRONMENT |= {"MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false"}


@dataclass(frozen=True)
class Store:
    """An open tracking store; under `lock`, find-then-write is one act between processes."""

    client: MlflowClient
    uri: str
    experiment_id: str
    lock: FileLock
    takes_artifacts: bool  # False: the experiment keeps them where the project was moved from, or on another machine

    def rows(self, train_key: str) -> list[Row]:
        """Every row of one training, newest first; those in the trash are not among them."""
        runs = self.client.search_runs([self.experiment_id], filter_string=f"tags.train_key = '{train_key}'")
        return [Row(self.client, run) for run in runs]

    def create(self, name: str, tags: dict[str, str]) -> Row:
        return Row(self.client, self.client.create_run(self.experiment_id, tags=tags, run_name=name))


_stores: dict[tuple[Path, str], Store] = {}
_off = False  # set by the first failure: nothing more is tried in this process


def store_errors() -> tuple[type[Exception], ...]:
    """What a store raises that is down, locked, full, foreign or half-made; our slips (TypeError, KeyError) pass."""
    from alembic.util import CommandError  # a schema that this mlflow does not know
    from mlflow.exceptions import MlflowException  # most failures, those of requests included
    from sqlalchemy.exc import SQLAlchemyError  # the first connect

    # And OSError: disk, sockets, the lock's Timeout. ImportError: the URI needs a driver that is not installed.
    return MlflowException, SQLAlchemyError, CommandError, OSError, ImportError


def never_failing(function: Callable[P, T]) -> Callable[P, T | None]:
    """Decorate: a failing store costs one warning, turns tracking off for this process, and None is returned."""

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T | None:
        global _off
        if _off:
            return None
        try:
            return function(*args, **kwargs)
        except store_errors() as error:
            _off = True
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            remedy = "check MLFLOW_TRACKING_URI or, if it is unset, the disk; a spoilt mlflow.db may be moved away"
            print(f"tracking is off for this stage: {reason}; results are not affected; {remedy}", file=sys.stderr)
            return None

    return guarded


@never_failing
def connect(root: Path) -> Store | None:
    """Open the store, or None: MLFLOW_TRACKING_URI if set, else <root>/mlflow.db, as a plain `mlflow ui` in `root`."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    root = root.resolve()
    given = os.environ.get("MLFLOW_TRACKING_URI")
    uri = given or f"sqlite:///{root / 'mlflow.db'}"
    if (root, uri) in _stores:
        return _stores[root, uri]
    if not given and any(mark in str(root) for mark in "%?"):
        raise OSError(f"no database address can name the folder {root}: rename it, without % and ?")
    from mlflow import MlflowClient  # takes two seconds, and only rank 0 needs it
    from mlflow.store.db import utils

    utils.MAX_RETRY_COUNT = 3  # not 10, which sleeps 101 seconds over a file that cannot be opened
    for noisy in ("mlflow.store", "urllib3.connectionpool"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)  # our one line says it
    lock = FileLock(root / "work" / "mlflow.lock", timeout=60)  # held for milliseconds, two seconds the first time
    artifacts = str(root / "mlartifacts") if uri.startswith("sqlite:") else None
    with lock:  # two processes that create one sqlite file at once can spoil it for good
        client = MlflowClient(tracking_uri=uri)
        experiment = open_experiment(client, artifacts)
    place = experiment.artifact_location
    here = ":/" in place or Path(place).parent.is_dir() if given else place == artifacts
    return _stores.setdefault((root, uri), Store(client, uri, experiment.experiment_id, lock, here))


def open_experiment(client: MlflowClient, artifacts: str | None) -> Experiment:
    """Find, restore or create the experiment, whose place for artifacts is then fixed, and give it the view."""
    columns = [f"metrics.`{score}`" for score in SCORES] + [f"params.`{knob}`" for knob in KNOBS.split()]
    order = {"columnOrder": columns, "orderByKey": columns[0], "orderByAsc": False}
    widths = {column: 7 * len(column) - 30 for column in columns}  # pixels: the name fits, and as many columns as can
    view = json.dumps({"selectedColumns": columns, "columnWidths": widths} | order)
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "translation"
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        experiment = client.get_experiment(client.create_experiment(name, artifacts))
    if experiment.lifecycle_stage == "deleted":
        client.restore_experiment(experiment.experiment_id)
    if experiment.tags.get(f"mlflow.sharedViewState.{VIEW}") != view:
        client.set_experiment_tag(experiment.experiment_id, f"mlflow.sharedViewState.{VIEW}", view)
    return experiment


class Row:
    """One MLflow run, by its id. Writes only what is not there yet, so everything may be replayed."""

    def __init__(self, client: MlflowClient, run: Run) -> None:
        self.client, self.run, self.id, self.tags = client, run, run.info.run_id, run.data.tags
        self.steps: dict[str, set[int]] = {}  # the steps at which each metric has a value

    def fits(self, params: Params) -> bool:
        """Could this be the row of `params`? They cannot be changed once logged, only added."""
        return all(key in params and str(params[key]) == value for key, value in self.run.data.params.items())

    def missing(self, curve: Curve) -> Iterable[tuple[str, int, float]]:
        """The (metric, step, value) of a curve that this row lacks; MLflow would keep equal ones twice."""
        for point in curve:
            step = int(point["step"] or 0)
            for key, value in point.items():
                if key == "step" or value is None:
                    continue
                if key not in self.steps:
                    self.steps[key] = {old.step for old in self.client.get_metric_history(self.id, key)}
                if step not in self.steps[key]:
                    self.steps[key].add(step)
                    yield key, step, value

    def log(self, params: Params, curve: Curve, scores: Mapping[str, float], tags: Mapping[str, str]) -> None:
        """Add the params and points that are missing, the scores that changed, and the tags."""
        from mlflow.entities import Metric, Param, RunTag

        now, old = int(time.time() * 1000), self.run.data
        metrics = [Metric(key, float(value), now, step) for key, step, value in self.missing(curve)]
        metrics += [Metric(key, float(score), now, 0) for key, score in scores.items() if old.metrics.get(key) != score]
        fresh = [Param(key, str(value)) for key, value in params.items() if key not in old.params]
        self.client.log_batch(self.id, metrics[:500], fresh, [RunTag(key, str(tag)) for key, tag in tags.items()])
        for start in range(500, len(metrics), 500):  # a batch may hold 1000 things
            self.client.log_batch(self.id, metrics[start : start + 500])


class TrainingRun:
    """The row of a training while it runs: RUNNING inside `with`, then FINISHED, KILLED (SIGTERM, Ctrl-C) or FAILED.

    Continues, under its id, the row of the same train_key and params that a killed or failed process left. A row with
    other params is left alone: it is still to be scored. Enter in one process only, under the training's own lock.
    """

    def __init__(self, root: Path, params: Params, train_key: str) -> None:
        self.root, self.params, self.train_key = root, params, train_key
        self.row: Row | None = None  # None: tracking is off

    def __enter__(self) -> TrainingRun:
        self._open()
        return self

    @never_failing
    def _open(self) -> None:
        if (store := connect(self.root)) is None:
            return
        name = os.environ.get("DVC_EXP_NAME") or f"{self.params.get('corpus')} {self.train_key[:7]}"
        with store.lock:
            rows = [row for row in store.rows(self.train_key) if row.fits(self.params)]
            rows.sort(key=lambda row: ("config_key" in row.tags, row.run.info.status == "FINISHED"))  # first unclaimed
            self.row = rows[0] if rows else store.create(name, {"train_key": self.train_key})
            store.client.update_run(self.row.id, status="RUNNING")
            self.row.log(self.params, (), {}, {})

    @never_failing
    def log_curve(self, rows: Curve) -> None:
        """Log rows of the curve; steps that are there already are skipped, so the whole curve may be replayed."""
        if self.row is not None:
            self.row.log({}, rows, {}, {})

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Log what differs between two equal runs and so stands in no out: speed, memory."""
        self.log_curve([{"step": step, **metrics}])

    @never_failing
    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        killed = isinstance(error, KeyboardInterrupt) or (isinstance(error, SystemExit) and error.code in (130, 143))
        if self.row is not None:
            status = "FINISHED" if error is None else "KILLED" if killed else "FAILED"
            self.row.client.set_terminated(self.row.id, status)


@never_failing
def record_scores(
    root: Path,
    params: Params,
    train_key: str,
    config_key: str,
    curve_rows: Curve,
    scores: Mapping[str, float],
    tags: Mapping[str, str],
    artifacts: Mapping[str, Path],  # folder name in the row: file or folder to copy
) -> None:
    """Write the one row of a configuration: the one it has, else a free one of its training, else a new one."""
    if (store := connect(root)) is None:
        return
    keys = {"train_key": train_key, "config_key": config_key}
    name = tags.get("DVC_EXP_NAME") or os.environ.get("DVC_EXP_NAME") or f"{params.get('corpus')} {config_key[:7]}"
    with store.lock:
        rows = [row for row in store.rows(train_key) if row.tags.get("config_key", config_key) == config_key]
        rows = [row for row in rows if "config_key" in row.tags or row.fits(params)]
        rows.sort(key=lambda row: ("config_key" not in row.tags, row.run.info.status != "FINISHED"))
        row = rows[0] if rows else store.create(name, keys)
        if "config_key" not in row.tags:  # later the name stays: somebody may have typed one in the page
            store.client.update_run(row.id, name=name)
        row.log(params, curve_rows, scores, {**tags, **keys})
        # The end stays that of the training, or an update next week would make it the longest of the table.
        store.client.set_terminated(row.id, "FINISHED", end_time=row.run.info.end_time)
    if artifacts and not store.takes_artifacts:
        print("MLflow keeps this experiment's files in another place, so it gets none: see reports/", file=sys.stderr)
    for folder, path in artifacts.items() if store.takes_artifacts else ():
        copy = store.client.log_artifacts if path.is_dir() else store.client.log_artifact
        copy(row.id, str(path), folder)
