"""Write the finished run of a configuration: any number of times, with the same result.

A store has one run of a configuration (the tag config_key), whoever computed it. A run gets that tag when all else is
written, so a run that has it is complete. If two clones write the same configuration at once, both find both runs, and
both keep the one that began first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from filelock import FileLock

from pipeline.tracking.content import COMPARED, PATCH, FinishedRun
from pipeline.tracking.open_runs import age, close_abandoned, open_runs, run_tags
from pipeline.tracking.store import WAIT, Store, now
from transformer.files import chunks

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput, Metric, Run

BATCH = 500  # points in a message, which may hold 1,000 things
GONE = ("INVALID_PARAMETER_VALUE", "INVALID_STATE", "RESOURCE_DOES_NOT_EXIST")  # of a run that was deleted


def is_origin(tag: str) -> bool:
    """Whether a tag says by whom, where and from which commit a run was recorded: those of the first recording stay."""
    return tag.startswith(("env_", "git_", "mlflow.", "DVC_"))


def write_run(store: Store, finished: FinishedRun) -> Run:
    """Write the run of a configuration and return it. Raises store errors.

    It writes the run with this config_key; otherwise this clone's unfinished run of the training; otherwise a new run.
    Runs in MLflow's trash are ignored, so a deleted run is written again.
    """
    from mlflow.exceptions import MlflowException

    close_abandoned(store)
    with FileLock(store.root / "work/record.lock", timeout=WAIT):
        try:
            return write_once(store, finished)
        except MlflowException as error:
            if error.error_code not in GONE:
                raise
            return write_once(store, finished)  # another clone deleted this run in favour of its own


def write_once(store: Store, finished: FinishedRun) -> Run:
    """See `write_run`."""
    recorded = recorded_runs(store, finished)
    if recorded:
        log(store, recorded[0], finished, is_new=False)
    else:
        tags = run_tags(store, finished.train_key, finished.params)
        runs = open_runs(store, finished.train_key, finished.params)
        run = runs[0] if runs else store.client.create_run(store.experiment_id, now(), tags, finished.name)
        log(store, run, finished, is_new=True)
        store.client.update_run(run.info.run_id, name=finished.name)
        store.client.set_terminated(run.info.run_id, "FINISHED")
        store.client.set_tag(run.info.run_id, "config_key", finished.config_key)
    first, *double = recorded_runs(store, finished)
    for run in [*double, *open_runs(store, finished.train_key, finished.params)]:
        delete_duplicate(store, run, first)
    return first


def recorded_runs(store: Store, finished: FinishedRun) -> list[Run]:
    """The runs of a configuration, the first one first; more than one only while clones write it at once."""
    runs = [run for run in store.runs(finished.train_key) if run.data.tags.get("config_key") == finished.config_key]
    return sorted(runs, key=age)


def delete_duplicate(store: Store, run: Run, first: Run) -> None:
    """Delete a run in favour of another one. If this user may not, its tag `duplicate_of` hides it from the table."""
    from mlflow.exceptions import MlflowException

    try:
        store.client.delete_run(run.info.run_id)
    except MlflowException as error:
        if error.error_code == "PERMISSION_DENIED":
            store.client.set_tag(run.info.run_id, "duplicate_of", first.info.run_id)
        elif error.error_code not in GONE:  # another clone did it at this moment
            raise


def log(store: Store, run: Run, finished: FinishedRun, is_new: bool) -> None:
    """Write to a run what it lacks.

    is_new: the run has no config_key yet. If False, the tags of its first recording (user, commit, machine) stay.
    """
    from mlflow.entities import Metric, Param, RunTag

    client, run_id = store.client, run.info.run_id
    params = [Param(name, str(value)) for name, value in finished.params.items()]
    tags = [RunTag(name, str(tag)) for name, tag in finished.tags.items() if is_new or not is_origin(name)]
    client.log_batch(run_id, params=params, tags=tags)
    metrics = missing_points(store, run, finished)
    metrics += [
        Metric(name, float(score), now(), 0)
        for name, score in finished.scores.items()
        if run.data.metrics.get(name) != score and (is_new or name not in COMPARED)
    ]
    for part in chunks(metrics, BATCH):
        client.log_batch(run_id, part)
    client.log_inputs(run_id, inputs(finished.datasets))
    if store.takes_artifacts:
        for name, text in finished.texts.items():
            if is_new or name != PATCH:
                client.log_text(run_id, text, name)


def missing_points(store: Store, run: Run, finished: FinishedRun) -> list[Metric]:
    """The points of the curve that a run lacks: MLflow stores a point a second time if it is sent a second time."""
    from mlflow.entities import Metric

    time = now()
    names = {name for row in finished.curve for name in row} - {"step"}
    sent = {
        name: {point.step for point in store.client.get_metric_history(run.info.run_id, name)} for name in sorted(names)
    }
    return [
        Metric(name, float(value), time, int(row["step"] or 0))
        for row in finished.curve
        for name, value in row.items()
        if name != "step" and value is not None and row["step"] not in sent[name]
    ]


def inputs(datasets: Iterable[Mapping[str, str | int]]) -> list[DatasetInput]:
    """The files that a run was computed from, for MLflow. datasets: see FinishedRun."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    result = []
    for file in datasets:
        profile = json.dumps({"sha256": file["sha256"], "lines": file["lines"]})
        dataset = Dataset(str(file["name"]), str(file["sha256"])[:36], "local", profile, profile=profile)
        result.append(DatasetInput(dataset, [InputTag("mlflow.data.context", str(file["context"]))]))
    return result
