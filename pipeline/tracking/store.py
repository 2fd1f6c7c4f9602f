"""The MLflow store: how it is opened, how its runs are found, and its errors."""

from __future__ import annotations

import gc
import getpass
import logging
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from transformer.credentials import check_address, mask_credentials
from transformer.files import printable, remove_temporaries, whole_file, write_text

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run

# By default MLflow waits four minutes for a server that is down, prints a link per run and sends usage data. Two tries
# of four seconds, with up to a second between them, take less than ten seconds.
ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "4",
    "PGCONNECT_TIMEOUT": "4",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
WAIT = 10  # seconds that a process waits for another one, or for the store
RELATIVE = "sqlite:///"  # sqlite:///name is a relative file, sqlite:////name an absolute one
OWN = f"{RELATIVE}mlflow.db"  # the default: what a plain `mlflow ui` opens
Row = Mapping[str, float | None]  # of a curve: "step", and metrics; None: not measured
SAMPLES = "samples.csv"  # the file of a run with translations of a few validation sentences at each validation
VALID = "valid.hyp"  # the file of a run that has the translations of the validation set
# A stage prints one line instead; and the logger of environments asks for pip, which this .venv does not have.
NOISY = ("mlflow.store", "mlflow.system_metrics", "mlflow.utils.environment", "urllib3.connectionpool")


@dataclass(frozen=True)
class Store:
    """An open tracking store.

    root: the project's folder. clone: the id of this clone of the project. takes_artifacts: False if the files of runs
    are kept in a former folder of the project.
    """

    client: MlflowClient
    uri: str
    experiment_id: str
    root: Path
    clone: str
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

    def runs(self, train_key: str) -> list[Run]:
        """The runs of one training, without duplicates that this user may not delete."""
        return self.search(f"tags.train_key = '{train_key}' and tags.duplicate_of IS NULL")


def now() -> int:
    """Milliseconds since 1970, MLflow's unit of time."""
    return int(time.time() * 1000)


def who() -> dict[str, str]:
    """The tags for MLflow's columns User and Source."""
    try:
        user = os.environ.get("MLFLOW_TRACKING_USERNAME") or getpass.getuser()
    except (KeyError, OSError):  # a container without a user database
        user = str(os.getuid())
    return {"mlflow.user": user, "mlflow.source.name": "dvc", "mlflow.source.type": "PROJECT"}


_stores: dict[tuple[Path, str], Store] = {}


def store_errors() -> tuple[type[Exception], ...]:
    """Exceptions of a store that is down, locked, full, foreign or incomplete; not our bugs (TypeError, KeyError)."""
    from alembic.util import CommandError  # a schema that this mlflow does not know
    from google.protobuf.json_format import ParseError  # an answer of something that is no MLflow
    from mlflow.exceptions import MlflowException  # most failures, those of requests included
    from sqlalchemy.exc import SQLAlchemyError  # the first connect

    # And OSError: disk, sockets, the lock's Timeout. ImportError: the URI needs a driver that is not installed.
    return MlflowException, SQLAlchemyError, CommandError, ParseError, OSError, ImportError


def reason(error: Exception) -> str:
    """The message of an error on one line of about 200 characters, without credentials. A long one lacks its middle."""
    text = printable(mask_credentials(" ".join(str(error).split()))) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:80]} ... {text[-120:]}"


def store_uri(root: Path) -> str:
    """The URI of the store: MLFLOW_TRACKING_URI if set, else <root>/mlflow.db.

    A relative file of sqlite is in `root`: the current folder may be a temporary copy that `dvc exp run` removes.
    """
    uri = os.environ.get("MLFLOW_TRACKING_URI") or OWN
    if not uri.startswith(RELATIVE) or uri.startswith(f"{RELATIVE}/"):
        try:
            return check_address(uri, "MLFLOW_TRACKING_URI")
        except ValueError as error:
            raise OSError(str(error)) from None
    if any(mark in str(root) for mark in "%?"):
        raise OSError(f"The folder {root} cannot be part of a database address. Rename it: without % and ?.")
    return f"{RELATIVE}{root / uri.removeprefix(RELATIVE)}"


def connect(root: Path) -> Store:
    """Open the store of `store_uri`. Raises one of store_errors()."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    root = root.resolve()
    uri = store_uri(root)
    if (root, uri) in _stores:
        return _stores[root, uri]
    import_mlflow()
    from mlflow import MlflowClient

    file = Path(uri.removeprefix(RELATIVE).partition("?")[0]) if uri.startswith(RELATIVE) else None
    artifacts = str(file.parent / "mlartifacts") if file else None
    (root / "work").mkdir(parents=True, exist_ok=True)
    # Two processes that create one database at once can break it for good. Several clones may share a file.
    with FileLock(f"{file}.lock" if file and file.parent != root else root / "work/mlflow.lock", timeout=WAIT):
        if file and not file.exists():
            create_database(file)
        clone = clone_id(root)
        client = MlflowClient(tracking_uri=uri)
        experiment = open_experiment(client, artifacts)
    place = experiment.artifact_location
    takes_artifacts = place == artifacts  # not if the project was moved, with its files in the former folder
    if file != root / "mlflow.db":
        takes_artifacts = ":/" in place or Path(place).parent.is_dir()
    store = Store(client, uri, experiment.experiment_id, root, clone, takes_artifacts)
    return _stores.setdefault((root, uri), store)


def import_mlflow() -> None:
    """Import MLflow, without garbage collection: beside torch that is twice as fast.

    Afterwards the new objects are left out of later collections, one of which would stop a training for a third of a
    second.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        import mlflow  # noqa: F401
        from mlflow.store.db import utils

        gc.freeze()
    finally:
        if was_on:
            gc.enable()
    utils.MAX_RETRY_COUNT = 2  # not 10: then a file that cannot be opened costs 101 seconds
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.CRITICAL)


def clone_id(root: Path) -> str:
    """The random id of this clone of the project, in work/clone, and the inode of work/, which a copy does not share.

    Several clones may share a store. A moved project keeps its id.
    """
    path = root / "work" / "clone"
    if not path.is_file():
        write_text(path, secrets.token_hex(8))
    return f"{path.read_text(encoding='utf-8')}-{path.parent.stat().st_ino}"


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


def open_experiment(client: MlflowClient, artifacts: str | None) -> Experiment:
    """Find, restore or create the experiment; where it keeps artifacts is fixed at creation."""
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
    return experiment
