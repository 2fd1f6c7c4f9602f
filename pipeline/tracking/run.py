"""One MLflow run, addressed by its id."""

from __future__ import annotations

import getpass
import json
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

Params = Mapping[str, str | int | float | bool]
Row = Mapping[str, float | None]  # "step", optionally "time" (ms), and metrics; None: not measured
Curve = Iterable[Row]


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


class TrackedRun:
    """One MLflow run. Its methods write only what the run lacks, so every call may be repeated.

    info, data, tags: the run as it was when it was read. steps: metric -> the steps that the store
    has; a metric is read when `missing` first needs it.
    """

    def __init__(self, client: MlflowClient, run: Run, steps: dict[str, set[int]] | None = None) -> None:
        self.client, self.id = client, run.info.run_id
        self.info, self.data, self.tags = run.info, run.data, run.data.tags
        self.steps = {} if steps is None else steps

    def age(self) -> tuple[int, str]:
        """What runs are sorted by, the first one first: in the same order for all clones."""
        return self.info.start_time, self.id

    def of_clone(self, clone: str) -> bool:
        """Whether this run was begun by a clone of the project; runs of version 0.1 do not say by which."""
        return self.tags.get("clone", clone) == clone

    def fits(self, params: Params) -> bool:
        """Whether this run can take `params`: logged params cannot be changed, only more can be added."""
        return all(key in params and str(params[key]) == value for key, value in self.data.params.items())

    def missing(self, curve: Curve, default_time: int) -> Iterable[Metric]:
        """The points of a curve that this run lacks; MLflow stores a point a second time if it is sent a second time.

        default_time: ms, for rows without a time.
        """
        from mlflow.entities import Metric

        for row in curve:
            step, time = int(row["step"] or 0), int(row.get("time") or default_time)
            for key, value in row.items():
                if key in ("step", "time") or value is None:
                    continue
                if key not in self.steps:
                    self.steps[key] = {old.step for old in self.client.get_metric_history(self.id, key)}
                if step not in self.steps[key]:
                    self.steps[key].add(step)
                    yield Metric(key, float(value), time, step)

    def log(self, params: Params, curve: Curve, scores: Mapping[str, float], tags: Mapping[str, str]) -> None:
        """Add the params and points of the curve that are missing, and the scores and tags that differ."""
        from mlflow.entities import Metric, Param, RunTag

        time, old = now(), self.data
        try:
            metrics = list(self.missing(curve, time))
            metrics += [
                Metric(key, float(score), time, 0) for key, score in scores.items() if old.metrics.get(key) != score
            ]
            new_params = [Param(key, str(value)) for key, value in params.items() if key not in old.params]
            run_tags = [RunTag(key, str(tag)) for key, tag in tags.items() if self.tags.get(key) != str(tag)]
            if metrics or new_params or run_tags:
                self.client.log_batch(self.id, metrics[:500], new_params, run_tags)
            for start in range(500, len(metrics), 500):  # a batch may hold 1000 things
                self.client.log_batch(self.id, metrics[start : start + 500])
        except BaseException:
            self.steps.clear()  # it is unknown which points arrived
            raise

    def log_status(self, status: str, end: int | None) -> None:
        """Set the status and the end time (ms) if they differ. end: None for a run that has not ended."""
        if status == "RUNNING":
            if self.info.status != status:
                self.client.update_run(self.id, status=status)
        elif (self.info.status, self.info.end_time) != (status, end):
            self.client.set_terminated(self.id, status, end_time=end)

    def log_datasets(self, datasets: Iterable[Mapping[str, str | int]]) -> None:
        """Name the files that this run was computed from: name, sha256, lines, context (training, validation, test)."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        inputs = []
        for file in datasets:
            description = json.dumps({"sha256": file["sha256"], "lines": file["lines"]})
            dataset = Dataset(str(file["name"]), str(file["sha256"])[:36], "local", description, profile=description)
            inputs.append(DatasetInput(dataset, [InputTag("mlflow.data.context", str(file["context"]))]))
        if inputs:
            self.client.log_inputs(self.id, inputs)

    def log_files(self, files: Mapping[str, Path]) -> None:
        """Keep files with this run: name -> where it is now."""
        for path in files.values():
            self.client.log_artifact(self.id, str(path))

    def delete_as_duplicate(self, first: TrackedRun) -> None:
        """Delete the run in favour of another. Who may not delete it marks it: its tag `duplicate_of` names the other.

        The mark takes the keys by which it would be found. The next who may delete it does (send_waiting).
        """
        if self.delete():
            return
        for key in {"config_key", "seeds_key", "seeds_parent"} & self.tags.keys():
            self.client.delete_tag(self.id, key)
        self.client.set_tag(self.id, "duplicate_of", first.id)

    def delete(self) -> bool:
        """Delete the run, unless another clone did meanwhile. Returns False if this user may not."""
        from mlflow.exceptions import MlflowException

        try:
            self.client.delete_run(self.id)
        except MlflowException as error:
            if error.error_code not in ("PERMISSION_DENIED", "INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST"):
                raise
            return error.error_code != "PERMISSION_DENIED"
        return True
