"""The MLflow store: how it is opened, how its runs are found, and the one exception that its failures become."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from filelock import FileLock

from pipeline.tracking.labels import DEFAULT_DESCRIPTION, EXPERIMENT_DESCRIPTION, NOTE
from transformer.credentials import check_address, mask_credentials
from transformer.files import escape_controls, is_bug, mistake_line, remove_temporaries, whole_file

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run

# By default MLflow waits four minutes for a server that is down. A busy server sends its own waiting time, which MLflow
# obeys. It prints a link per run and sends usage data. Two tries of four seconds, with up to a second between, take
# less than ten seconds. A locked file of sqlite is waited for up to 5 s when it is opened (sqlite's limit), then 20 s a
# call (MLflow's).
ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "4",
    "MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER": "false",
    "PGCONNECT_TIMEOUT": "4",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
DEFAULT_ID = "0"  # of the experiment that MLflow makes in each new store
CREATION = 60  # seconds: for another process that creates the database, which takes long on a busy machine
FILE_SECONDS = "600"  # for a server to store a file
RELATIVE = "sqlite:///"  # sqlite:///name is a relative file, sqlite:////name an absolute one
OWN_STORE = f"{RELATIVE}mlflow.db"  # the default: what a plain `mlflow ui` opens
# A stage prints one line instead; and the logger of environments asks for pip, which this .venv does not have.
NOISY = ("mlflow.store", "mlflow.system_metrics", "mlflow.utils.environment", "urllib3.connectionpool")


class StoreError(Exception):
    """A store is down, locked, full, foreign or incomplete. Its message is one line without credentials.

    code: MLflow's name for the failure, if it has one.
    """

    def __init__(self, message: str, code: str = ""):
        super().__init__(message)
        self.code = code


@contextmanager
def store_errors() -> Iterator[None]:
    """Turn failures of MLflow, its database and its server, and a Mistake, into StoreError. All else is a bug.

    A failure has a class of a library, or is an OSError or MLflow's ValueError about one of its settings.
    """
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        is_of_library = type(error).__module__ != "builtins" or isinstance(error, ValueError)
        if not (isinstance(error, OSError) or mistake_line(error) or (is_of_library and not is_bug(error))):
            raise
        raise StoreError(reason(error), getattr(error, "error_code", "")) from error


def reason(error: Exception) -> str:
    """The message of an error on one line, without credentials. One of more than 400 characters lacks its middle."""
    text = escape_controls(mask_credentials(" ".join(str(error).split()))) or type(error).__name__
    return text if len(text) <= 400 else f"{text[:200]} ... {text[-195:]}"


class Client:
    """MLflow's client, which raises StoreError."""

    def __init__(self, client: MlflowClient):
        self._client = client

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def ask(*words: Any, **named: Any) -> Any:
            with store_errors():
                return method(*words, **named)

        return ask


@dataclass(frozen=True)
class Store:
    """An open tracking store.

    root: the project's folder. takes_artifacts: whether files of runs can be stored; not if the project was moved and
    MLflow still stores them in its former folder.
    """

    client: MlflowClient
    uri: str
    experiment_id: str
    root: Path
    takes_artifacts: bool

    def search(self, filter_string: str, deleted: bool = False) -> list[Run]:
        """The runs that match an MLflow filter, newest first. deleted: those in MLflow's trash instead."""
        from mlflow.entities import ViewType

        kind = ViewType.DELETED_ONLY if deleted else ViewType.ACTIVE_ONLY
        runs, token = [], None
        while token != "":
            page = self.client.search_runs([self.experiment_id], filter_string, kind, page_token=token)
            runs += page
            token = page.token or ""
        return runs

    def activate(self) -> None:
        """Make this store and experiment those of MLflow's functions that take them from the process."""
        import mlflow

        with store_errors():
            mlflow.set_tracking_uri(self.uri)
            mlflow.set_experiment(experiment_id=self.experiment_id)


def now() -> int:
    """Milliseconds since 1970, MLflow's unit of time."""
    return int(time.time() * 1000)


def configured_uri() -> str:
    """The URI of the store as it is configured: MLFLOW_TRACKING_URI if set, else OWN_STORE."""
    return os.environ.get("MLFLOW_TRACKING_URI") or OWN_STORE


def store_uri(root: Path) -> str:
    """The URI of the store: MLFLOW_TRACKING_URI if set, else <root>/mlflow.db. Raises StoreError for no address.

    A relative file of sqlite is in `root`: the current folder may be a temporary copy that `dvc exp run` removes.
    """
    uri = configured_uri()
    if not uri.startswith(RELATIVE) or uri.startswith(f"{RELATIVE}/"):
        with store_errors():
            return check_address(uri, "MLFLOW_TRACKING_URI")
    if any(mark in str(root) for mark in "%?"):
        raise StoreError(f"The folder {root} cannot be part of a database address. Rename it: without % and ?.")
    return f"{RELATIVE}{root / uri.removeprefix(RELATIVE)}"


def connect(root: Path) -> Store:
    """Open the store of `store_uri`. Raises StoreError."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    root = root.resolve()
    return open_store(root, store_uri(root), os.environ.get("MLFLOW_EXPERIMENT_NAME") or "translation")


@cache
def open_store(root: Path, uri: str, name: str) -> Store:
    """The store at an address, with an experiment of this name. Raises StoreError."""
    with store_errors():
        import_mlflow()
        if not uri.startswith(RELATIVE):
            client, experiment = open_experiment(uri, name)
            return Store(client, uri, experiment.experiment_id, root, is_reachable(experiment.artifact_location))
        file = Path(uri.removeprefix(RELATIVE).partition("?")[0])
        artifacts = str(file.parent / "mlartifacts")
        # Two processes that create one database at once can break it for good. Several clones may share a file.
        with FileLock(f"{file}.lock", timeout=CREATION):
            is_new = not file.exists()
            if is_new:
                create_database(file)
            client, experiment = open_experiment(uri, name, artifacts)
            if is_new and experiment.experiment_id != DEFAULT_ID:
                client.set_experiment_tag(DEFAULT_ID, NOTE, DEFAULT_DESCRIPTION)
        location = experiment.artifact_location
        # Not if the project was moved or copied, with its files in the former folder.
        takes_artifacts = location == artifacts or (file != root / "mlflow.db" and is_reachable(location))
        return Store(client, uri, experiment.experiment_id, root, takes_artifacts)


def is_reachable(location: str) -> bool:
    """Whether files can be kept at an artifact location: on a server, or in a folder of this machine."""
    return ":/" in location or Path(location).parent.is_dir()


def import_mlflow() -> None:
    """Import MLflow, which takes a second, and make it fail soon and quietly."""
    from mlflow.store.db import utils

    utils.MAX_RETRY_COUNT = 2  # not 10: then a file that cannot be opened costs 101 seconds
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.CRITICAL)


def create_database(path: Path) -> None:
    """Create MLflow's sqlite file under another name and rename it, so that a process killed here leaves no half file.

    MLflow cannot open a database in which some of its tables are missing.
    """
    from mlflow.store.db import utils

    remove_temporaries(path)
    with whole_file(path) as temporary:
        engine = utils.create_sqlalchemy_engine(f"sqlite:///{temporary}")
        try:
            utils._initialize_tables(engine)
        finally:
            engine.dispose()


def open_experiment(uri: str, name: str, artifacts: str | None = None) -> tuple[MlflowClient, Experiment]:
    """Find, restore or create the experiment; where it keeps artifacts is fixed at creation."""
    from mlflow import MlflowClient

    client = cast("MlflowClient", Client(MlflowClient(tracking_uri=uri)))
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        try:
            client.create_experiment(name, artifacts, {NOTE: EXPERIMENT_DESCRIPTION})
        except StoreError as error:
            if error.code != "RESOURCE_ALREADY_EXISTS":  # another clone made it meanwhile
                raise
        experiment = client.get_experiment_by_name(name)
        assert experiment
    if experiment.lifecycle_stage == "deleted":
        client.restore_experiment(experiment.experiment_id)
    return client, experiment


@contextmanager
def long_requests() -> Iterator[None]:
    """Give a server ten minutes to store a file."""
    name = "MLFLOW_HTTP_REQUEST_TIMEOUT"  # which `connect` has set
    before, os.environ[name] = os.environ[name], FILE_SECONDS
    try:
        yield
    finally:
        os.environ[name] = before
