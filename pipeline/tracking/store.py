"""The MLflow store: how it is opened, its runs, and its errors. What is written to a run: sync.py."""

from __future__ import annotations

import gc
import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from filelock import FileLock

from pipeline.tracking.run import TrackedRun
from pipeline.tracking.runs_table import KNOBS, TAG, view
from transformer.credentials import mask_credentials
from transformer.files import whole_file, write_text

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run


# By default mlflow waits four minutes for a server that is down, prints a link per run and sends usage data.
ENVIRONMENT = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
ENVIRONMENT |= {"MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}
ENVIRONMENT |= {"MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false"}
CLONE = "clone"  # the file in work/ with the id of the clone
RELATIVE = "sqlite:///"  # sqlite:///name is a relative file, sqlite:////name an absolute one
OWN = f"{RELATIVE}mlflow.db"  # the default: what a plain `mlflow ui` opens


@dataclass(frozen=True)
class Store:
    """An open tracking store. Hold `lock` to find a run and write to it with no process of this clone in between.

    For a file of sqlite outside the project, the lock is beside it: no process of any clone on this machine.
    """

    client: MlflowClient
    uri: str
    experiment_id: str
    identity: str  # of the experiment; the one of a database that was made anew has another
    lock: FileLock
    clone: str  # the id of this clone of the project
    takes_artifacts: bool  # False: artifacts are kept in a former folder of the project or on another machine

    def search(self, filter_string: str) -> list[TrackedRun]:
        """The runs that match an MLflow filter, newest first, without those in the trash."""
        from mlflow.entities import ViewType

        return [TrackedRun(self.client, run) for run in self.all_runs(filter_string, ViewType.ACTIVE_ONLY)]

    def runs(self, train_key: str) -> list[TrackedRun]:
        """The runs of one training, newest first, without those in the trash."""
        return self.search(f"tags.train_key = '{train_key}'")

    def all_runs(self, filter_string: str = "", view: int = 3) -> Iterator[Run]:
        """The runs that match an MLflow filter. view: MLflow's ViewType; ALL, the default, includes the trash."""
        token: str | None = ""
        while token is not None:
            page = self.client.search_runs([self.experiment_id], filter_string, view, page_token=token or None)
            yield from page
            token = page.token or None

    def create_run(self, name: str, tags: dict[str, str], start_time: int | None = None) -> TrackedRun:
        """A new run. start_time: ms, default now."""
        run = self.client.create_run(self.experiment_id, start_time, tags, name)
        return TrackedRun(self.client, run)


_stores: dict[tuple[Path, str], Store] = {}


def store_errors() -> tuple[type[Exception], ...]:
    """Exceptions of a store that is down, locked, full, foreign or incomplete; not our bugs (TypeError, KeyError)."""
    from alembic.util import CommandError  # a schema that this mlflow does not know
    from google.protobuf.json_format import ParseError  # an answer of something that is no MLflow
    from mlflow.exceptions import MlflowException  # most failures, those of requests included
    from sqlalchemy.exc import SQLAlchemyError  # the first connect

    # And OSError: disk, sockets, the lock's Timeout. ImportError: the URI needs a driver that is not installed.
    return MlflowException, SQLAlchemyError, CommandError, ParseError, OSError, ImportError


def is_permanent(error: Exception) -> bool:
    """Whether the store refuses a request for good, as for a deleted run: sending it again does not help."""
    codes = ("INVALID_PARAMETER_VALUE", "INVALID_STATE", "RESOURCE_DOES_NOT_EXIST")
    return getattr(error, "error_code", None) in codes


def reason(error: Exception) -> str:
    """The message of an error on one line of about 200 characters, without credentials. A long one lacks its middle."""
    text = mask_credentials(" ".join(str(error).split())) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:80]} ... {text[-120:]}"


def address() -> str:
    """Where runs are stored, without credentials: MLFLOW_TRACKING_URI if set, else the project's own database.

    And the experiment, if MLFLOW_EXPERIMENT_NAME names one.
    """
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "")
    uri = mask_credentials(os.environ.get("MLFLOW_TRACKING_URI") or OWN).removeprefix(RELATIVE)
    return f"{uri} {name}".strip()


def store_uri(root: Path) -> str:
    """The URI of the store: MLFLOW_TRACKING_URI if set, else <root>/mlflow.db.

    A relative file of sqlite is in `root`: the current folder may be a temporary copy that `dvc exp run` removes.
    """
    uri = os.environ.get("MLFLOW_TRACKING_URI") or OWN
    if not uri.startswith(RELATIVE) or uri.startswith(f"{RELATIVE}/"):
        try:
            urlsplit(uri)
        except ValueError as error:  # as for brackets in a password
            raise OSError(f"MLFLOW_TRACKING_URI is not an address ({error})") from None
        return uri
    if any(mark in str(root) for mark in "%?"):
        raise OSError(f"The folder {root} cannot be part of a database address. Rename it: without % and ?.")
    return f"{RELATIVE}{root / uri.removeprefix(RELATIVE)}"


def database(uri: str) -> Path | None:
    """The file of a store in sqlite; None for another store."""
    return Path(uri.removeprefix(RELATIVE).partition("?")[0]) if uri.startswith(RELATIVE) else None


def connect(root: Path) -> Store:
    """Open the store of `store_uri`. Raises one of store_errors()."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    root = root.resolve()
    uri = store_uri(root)
    if (root, uri) in _stores:
        return _stores[root, uri]
    file = database(uri)
    # Held for milliseconds, two seconds the first time. Beside the database, since several clones may write to it.
    own = file is None or file == root / "mlflow.db"
    lock = FileLock(root / "work" / "mlflow.lock" if own else f"{file}.lock", timeout=60)
    artifacts = str(file.parent / "mlartifacts") if file else None
    with without_garbage_collection():
        from mlflow import MlflowClient  # here: it takes a second, and only rank 0 needs it
        from mlflow.store.db import utils

        utils.MAX_RETRY_COUNT = 3  # not 10: then a file that cannot be opened costs 101 seconds
        for noisy in ("mlflow.store", "urllib3.connectionpool"):
            logging.getLogger(noisy).setLevel(logging.CRITICAL)  # Sender prints one line instead
        with lock:  # two processes that create one sqlite file at once can break it for good
            if file and not file.exists():
                create_database(file)
            client = MlflowClient(tracking_uri=uri)
            experiment = open_experiment(client, artifacts)
    place = experiment.artifact_location
    takes_artifacts = place == artifacts  # not if the project was moved, with its files in the former folder
    if file != root / "mlflow.db":
        takes_artifacts = ":/" in place or Path(place).parent.is_dir()
    identity = f"{experiment.experiment_id} of {experiment.creation_time}"
    store = Store(client, uri, experiment.experiment_id, identity, lock, clone_id(root), takes_artifacts)
    return _stores.setdefault((root, uri), store)


def clone_id(root: Path) -> str:
    """The random id of this clone of the project, in work/clone. Several clones may share a store.

    A copied project gets another id than the original, a moved one keeps its id: the file also has the inode of work/.
    """
    path = root / "work" / CLONE
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        inode = str(path.parent.stat().st_ino)
        name, *place = path.read_text(encoding="utf-8").split() if path.is_file() else ("",)
        if not name or place not in ([], [inode]):
            name = secrets.token_hex(8)
        write_text(path, f"{name} {inode}")
        return name


def create_database(path: Path) -> None:
    """Create MLflow's sqlite file under another name and rename it, so that a process killed here leaves no half file.

    MLflow cannot open a database in which some of its tables are missing.
    """
    from mlflow.store.db import utils

    with whole_file(path) as temporary:
        temporary.unlink(missing_ok=True)  # of a process that was killed
        engine = utils.create_sqlalchemy_engine(f"sqlite:///{temporary}")
        try:
            utils._initialize_tables(engine)
        finally:
            engine.dispose()


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Switch garbage collection off in the block: MLflow is then imported twice as fast beside torch.

    Afterwards all objects of then are left out of later collections, one of which would stop the training for a third
    of a second. After an exception they are not left out: each failed try to connect leaves garbage.
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
    """Find, restore or create the experiment and give it the view; where it keeps artifacts is fixed at creation."""
    from mlflow.exceptions import MlflowException

    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "translation"
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        try:
            client.create_experiment(name, artifacts)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":  # another clone made it meanwhile
                raise
        experiment = client.get_experiment_by_name(name)
        assert experiment
    if experiment.lifecycle_stage == "deleted":
        client.restore_experiment(experiment.experiment_id)
    if TAG not in experiment.tags:
        with suppress(MlflowException):  # another clone did it at this moment; no runs are lost without it
            client.set_experiment_tag(experiment.experiment_id, TAG, view(KNOBS))
    return experiment
