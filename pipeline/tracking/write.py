"""Write what a store lacks of a result: any number of times, with the same end.

The run of a result is that of its training, if this project has it and it is not finished; else the one in the store
with the tag config_key of this result; else a new one. A FINISHED run has its params, points and files; if it lacks the
version of a model, its files are written and the model is registered.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from filelock import FileLock

from pipeline.tracking.content import FinishedRun, config_key, finished_run, train_key
from pipeline.tracking.labels import labels
from pipeline.tracking.live import points, run_of_training
from pipeline.tracking.registry import register_model, version_of
from pipeline.tracking.store import Store, long_requests, now
from pipeline.workflow.dvc_lock import Result
from transformer.files import chunks

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput, Metric, Run

ELSEWHERE = (
    "MLflow keeps the files of this experiment in another place (the project was moved, or made on another machine). "
    "No model was registered."
)
BATCH = 500  # points in a message, which may hold 1,000 things


def write_missing(store: Store, result: Result, origin: Mapping[str, str]) -> tuple[bool, str]:
    """Write the run of a result, and register its model, if the store lacks them. Raises StoreError.

    origin: tags that say where the result comes from. Returns whether something was written, and a message.
    """
    key = config_key(result)
    (store.root / "work").mkdir(exist_ok=True)
    with FileLock(store.root / "work/record.lock"):  # `make ui` and `record` may write the same result at once
        run = run_of(store, run_of_training(store, vars(result.params), train_key(result)), key)
        if run and run.info.status == "FINISHED" and (not store.takes_artifacts or version_of(store, run.info.run_id)):
            return False, "The store has the run and its model." if store.takes_artifacts else ELSEWHERE
        finished = finished_run(result, origin)
        if run is None or run.info.status != "FINISHED":
            run = write_run(store, finished, run)
        else:  # its files may be lost with those of a version that was deleted
            write_texts(store, run.info.run_id, finished.texts)
        if not store.takes_artifacts:
            return True, ELSEWHERE
        return True, f"Registered {register_model(store, result, finished, run.info.run_id)}."


def run_of(store: Store, training: Run | None, config_key: str) -> Run | None:
    """The run of a result: that of its training, if any, else the one in the store, a finished one first; or None."""
    if training is not None:
        return training
    runs = store.search(f"tags.config_key = '{config_key}'")
    return min(runs, key=lambda run: run.info.status != "FINISHED", default=None)


def write_run(store: Store, finished: FinishedRun, run: Run | None = None) -> Run:
    """Write the run of a configuration and set it FINISHED. Raises StoreError.

    run: the unfinished one to complete; None: a new one.
    """
    from mlflow.entities import Metric, Param, RunTag

    client = store.client
    run = run or client.create_run(store.experiment_id, now(), {"config_key": finished.config_key}, finished.name)
    run_id, start = run.info.run_id, run.info.start_time
    tags = {**finished.tags, "train_key": finished.train_key, "config_key": finished.config_key}
    tags |= labels(finished.params, finished.tags)
    client.log_batch(
        run_id,
        params=[Param(name, str(value)) for name, value in finished.params.items()],
        tags=[RunTag(name, str(tag)) for name, tag in tags.items()],
    )
    scores = [Metric(name, float(score), start, 0) for name, score in finished.scores.items()]
    for part in chunks(missing_points(store, run, [*points(run, finished.curve), *scores]), BATCH):
        client.log_batch(run_id, part)
    client.log_inputs(run_id, inputs(finished.datasets))
    write_texts(store, run_id, finished.texts)
    client.update_run(run_id, name=finished.name)
    client.set_terminated(run_id, "FINISHED")
    return run


def missing_points(store: Store, run: Run, metrics: Sequence[Metric]) -> list[Metric]:
    """The points whose steps a run does not have yet: MLflow would keep both, if sums were rounded differently."""
    histories = {name: store.client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
    steps = {name: {point.step for point in history} for name, history in histories.items()}
    return [point for point in metrics if point.step not in steps.get(point.key, ())]


def write_texts(store: Store, run_id: str, texts: Mapping[str, str]) -> None:
    """Write files of a run: name -> content."""
    if store.takes_artifacts:
        with long_requests():
            for name, text in texts.items():
                store.client.log_text(run_id, text, name)


def inputs(datasets: Iterable[Mapping[str, str | int]]) -> list[DatasetInput]:
    """The files that a run was computed from, for MLflow. datasets: see FinishedRun."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    result = []
    for file in datasets:
        profile = json.dumps({"sha256": file["sha256"], "lines": file["lines"]})
        source = json.dumps({"uri": file["path"]})
        dataset = Dataset(str(file["name"]), str(file["sha256"])[:36], "local", source, profile=profile)
        result.append(DatasetInput(dataset, [InputTag("mlflow.data.context", str(file["context"]))]))
    return result
