"""One MLflow run, addressed by its id."""

from __future__ import annotations

import getpass
import json
import os
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

Params = Mapping[str, str | int | float | bool]
Curve = Iterable[Mapping[str, float | None]]  # rows of "step", optionally "time" (ms), and metrics; None: not measured


def now() -> int:
    """Milliseconds since 1970, MLflow's unit of time."""
    return int(time.time() * 1000)


def who() -> dict[str, str]:
    """MLflow's tags of the user, and of what runs: shown in the columns User and Source."""
    try:
        user = os.environ.get("MLFLOW_TRACKING_USERNAME") or getpass.getuser()
    except (KeyError, OSError):  # a container without a user database
        user = str(os.getuid())
    return {"mlflow.user": user, "mlflow.source.name": "dvc", "mlflow.source.type": "PROJECT"}


class TrackedRun:
    """One MLflow run. Its methods write only what the run lacks, so every call may be repeated.

    info, data, tags: the run as it was when it was read.
    """

    def __init__(self, client: MlflowClient, run: Run) -> None:
        self.client, self.id = client, run.info.run_id
        self.info, self.data, self.tags = run.info, run.data, run.data.tags
        self.steps: dict[str, set[int]] = {}  # metric -> the steps at which it has a value

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
        """Add the params and points of the curve that are missing, the scores that changed, and the tags."""
        from mlflow.entities import Metric, Param, RunTag

        time, old = now(), self.data
        try:
            metrics = list(self.missing(curve, time))
            metrics += [
                Metric(key, float(score), time, 0) for key, score in scores.items() if old.metrics.get(key) != score
            ]
            new_params = [Param(key, str(value)) for key, value in params.items() if key not in old.params]
            run_tags = [RunTag(key, str(tag)) for key, tag in tags.items()]
            self.client.log_batch(self.id, metrics[:500], new_params, run_tags)
            for start in range(500, len(metrics), 500):  # a batch may hold 1000 things
                self.client.log_batch(self.id, metrics[start : start + 500])
        except BaseException:
            self.steps.clear()  # it is unknown which points arrived
            raise

    def log_datasets(self, datasets: Iterable[Mapping[str, str | int]]) -> None:
        """Name the files that this run was computed from: name, sha256, lines, context (training, validation, test)."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        inputs = []
        for file in datasets:
            description = json.dumps({"sha256": file["sha256"], "lines": file["lines"]})
            dataset = Dataset(str(file["name"]), str(file["sha256"])[:36], "local", description, profile=description)
            inputs.append(DatasetInput(dataset, [InputTag("mlflow.data.context", str(file["context"]))]))
        self.client.log_inputs(self.id, inputs)

    def log_texts(self, texts: Mapping[str, str]) -> None:
        """Keep texts as files of this run, except those that the run has already with the same length."""
        sizes = {file.path: file.file_size for file in self.client.list_artifacts(self.id)} if texts else {}
        for name, text in texts.items():
            if sizes.get(name) != len(text.encode("utf-8")):
                self.client.log_text(self.id, text, name)
