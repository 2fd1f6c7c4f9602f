"""The MLflow store, its rows, and what can go wrong with it. Who writes what into a row: recording.py."""

from __future__ import annotations

import gc
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from transformer.tracking.run import TrackedRun
from transformer.tracking.runs_table import KNOBS, TAG, view

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run


# By default mlflow waits four minutes for a server that is gone, prints a link per run and phones home.
ENVIRONMENT = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
ENVIRONMENT |= {"MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}
ENVIRONMENT |= {"MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false"}
SECRETS = ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


@dataclass(frozen=True)
class Store:
    """An open tracking store; under `lock`, find-then-write is one act between processes."""

    client: MlflowClient
    uri: str
    experiment_id: str
    lock: FileLock
    takes_artifacts: bool  # False: the experiment keeps them where the project was moved from, or on another machine

    def runs(self, train_key: str) -> list[TrackedRun]:
        """Every row of one training, newest first; those in the trash are not among them."""
        runs = self.client.search_runs([self.experiment_id], filter_string=f"tags.train_key = '{train_key}'")
        return [TrackedRun(self.client, run) for run in runs]

    def all_runs(self, filter_string: str = "", all_experiments: bool = False) -> Iterator[Run]:
        """Every run that fits a filter of MLflow's, also in the trash and, if asked for, also in other experiments."""
        from mlflow.entities import ViewType

        experiments = [self.experiment_id]
        if all_experiments:
            experiments = [one.experiment_id for one in self.client.search_experiments(ViewType.ALL)]
        token: str | None = ""
        while token is not None:
            page = self.client.search_runs(experiments, filter_string, ViewType.ALL, page_token=token or None)
            yield from page
            token = page.token or None

    def create_run(self, name: str, tags: dict[str, str], start_time: int | None = None) -> TrackedRun:
        """A new row; start_time: ms, default now."""
        run = self.client.create_run(self.experiment_id, start_time, tags, name)
        return TrackedRun(self.client, run)


_stores: dict[tuple[Path, str], Store] = {}


def store_errors() -> tuple[type[Exception], ...]:
    """What a store raises that is down, locked, full, foreign or half-made; our slips (TypeError, KeyError) pass."""
    from alembic.util import CommandError  # a schema that this mlflow does not know
    from mlflow.exceptions import MlflowException  # most failures, those of requests included
    from sqlalchemy.exc import SQLAlchemyError  # the first connect

    # And OSError: disk, sockets, the lock's Timeout. ImportError: the URI needs a driver that is not installed.
    return MlflowException, SQLAlchemyError, CommandError, OSError, ImportError


def is_permanent(error: Exception) -> bool:
    """Whether the store understood and will not, as for a row that somebody deleted: a second try is of no use."""
    codes = ("INVALID_PARAMETER_VALUE", "INVALID_STATE", "RESOURCE_DOES_NOT_EXIST")
    return getattr(error, "error_code", None) in codes


def reason(error: Exception) -> str:
    """What went wrong, on one line, without credentials."""
    return mask_credentials(" ".join(str(error).split()))[:200] or type(error).__name__


def mask_credentials(text: str) -> str:
    """The text without the user and password of an address, and without the secrets that variables hold."""
    for name in SECRETS:
        if secret := os.environ.get(name):
            text = text.replace(secret, "***")
    return re.sub(r"(://)[^/@\s]*@", r"\1***@", text)


def address() -> str:
    """Where rows go, without credentials: as MLFLOW_TRACKING_URI says, else to the project's own file."""
    return mask_credentials(os.environ.get("MLFLOW_TRACKING_URI") or "mlflow.db")


def connect(root: Path) -> Store:
    """Open the store: MLFLOW_TRACKING_URI if set, else <root>/mlflow.db, as a plain `mlflow ui` in `root`.

    Raises one of store_errors().
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    root = root.resolve()
    given = os.environ.get("MLFLOW_TRACKING_URI")
    uri = given or f"sqlite:///{root / 'mlflow.db'}"
    if (root, uri) in _stores:
        return _stores[root, uri]
    if not given and any(mark in str(root) for mark in "%?"):
        raise OSError(f"no database address can name the folder {root}: rename it, without % and ?")
    lock = FileLock(root / "work" / "mlflow.lock", timeout=60)  # held for milliseconds, two seconds the first time
    artifacts = str(root / "mlartifacts") if uri.startswith("sqlite:") else None
    with without_garbage_collection():
        from mlflow import MlflowClient  # here, since it takes a second, and only rank 0 needs it
        from mlflow.store.db import utils

        utils.MAX_RETRY_COUNT = 3  # not 10, which sleeps 101 seconds over a file that cannot be opened
        for noisy in ("mlflow.store", "urllib3.connectionpool"):
            logging.getLogger(noisy).setLevel(logging.CRITICAL)  # our one line says it
        with lock:  # two processes that create one sqlite file at once can spoil it for good
            client = MlflowClient(tracking_uri=uri)
            experiment = open_experiment(client, artifacts)
    place = experiment.artifact_location
    here = ":/" in place or Path(place).parent.is_dir() if given else place == artifacts
    return _stores.setdefault((root, uri), Store(client, uri, experiment.experiment_id, lock, here))


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Switch off the search for garbage: an import leaves none, and in the presence of torch it takes half the time.

    What was made stays out of later searches too: the next one would stop the training for a third of a second. Not
    after a failure, which does leave garbage, at every try.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was_on:
            gc.enable()


def open_experiment(client: MlflowClient, artifacts: str | None) -> Experiment:
    """Find, restore or create the experiment, whose place for artifacts is then fixed, and give it the view."""
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "translation"
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        experiment = client.get_experiment(client.create_experiment(name, artifacts))
    if experiment.lifecycle_stage == "deleted":
        client.restore_experiment(experiment.experiment_id)
    if TAG not in experiment.tags:
        client.set_experiment_tag(experiment.experiment_id, TAG, view(KNOBS))
    return experiment
