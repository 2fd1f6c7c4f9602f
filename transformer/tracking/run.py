"""One MLflow run, by its id."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

Params = Mapping[str, str | int | float | bool]
Curve = Iterable[Mapping[str, float | None]]  # rows of "step", perhaps "time" (ms), and metrics; None: not taken then


def now() -> int:
    """Milliseconds since 1970, as MLflow counts."""
    return int(time.time() * 1000)


class TrackedRun:
    """One MLflow run, by its id. Writes only what is not there yet, so everything may be replayed."""

    def __init__(self, client: MlflowClient, run: Run) -> None:
        self.client, self.id = client, run.info.run_id
        self.info, self.data, self.tags = run.info, run.data, run.data.tags
        self.steps: dict[str, set[int]] = {}  # the steps at which each metric has a value

    def fits(self, params: Params) -> bool:
        """Could this be the row of `params`? They cannot be changed once logged, only added."""
        return all(key in params and str(params[key]) == value for key, value in self.data.params.items())

    def missing(self, curve: Curve, moment: int) -> Iterable[tuple[str, float, int, int]]:
        """The (metric, value, time, step) of a curve that this row lacks; MLflow would keep equal ones twice."""
        for point in curve:
            step, time = int(point["step"] or 0), int(point.get("time") or moment)
            for key, value in point.items():
                if key in ("step", "time") or value is None:
                    continue
                if key not in self.steps:
                    self.steps[key] = {old.step for old in self.client.get_metric_history(self.id, key)}
                if step not in self.steps[key]:
                    self.steps[key].add(step)
                    yield key, float(value), time, step

    def log(self, params: Params, curve: Curve, scores: Mapping[str, float], tags: Mapping[str, str]) -> None:
        """Add the params and points that are missing, the scores that changed, and the tags."""
        from mlflow.entities import Metric, Param, RunTag

        moment, old = now(), self.data
        try:
            metrics = [Metric(*point) for point in self.missing(curve, moment)]
            metrics += [
                Metric(key, float(score), moment, 0) for key, score in scores.items() if old.metrics.get(key) != score
            ]
            fresh = [Param(key, str(value)) for key, value in params.items() if key not in old.params]
            self.client.log_batch(self.id, metrics[:500], fresh, [RunTag(key, str(tag)) for key, tag in tags.items()])
            for start in range(500, len(metrics), 500):  # a batch may hold 1000 things
                self.client.log_batch(self.id, metrics[start : start + 500])
        except BaseException:
            self.steps.clear()  # what was sent is unknown now
            raise

    def log_datasets(self, datasets: Iterable[Mapping[str, str | int]]) -> None:
        """Name the files that this row was computed from: name, sha256, lines, and the context (train, valid, test)."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        inputs = []
        for file in datasets:
            description = json.dumps({"sha256": file["sha256"], "lines": file["lines"]})
            dataset = Dataset(str(file["name"]), str(file["sha256"])[:36], "local", description, profile=description)
            inputs.append(DatasetInput(dataset, [InputTag("mlflow.data.context", str(file["context"]))]))
        self.client.log_inputs(self.id, inputs)

    def log_texts(self, texts: Mapping[str, str]) -> None:
        """Keep texts as files of this row, those that are not there yet or have another length."""
        sizes = {file.path: file.file_size for file in self.client.list_artifacts(self.id)} if texts else {}
        for name, text in texts.items():
            if sizes.get(name) != len(text.encode("utf-8")):
                self.client.log_text(self.id, text, name)

    def total(self, metric: str) -> float:
        """The sum of a metric over its steps."""
        return sum(point.value for point in self.client.get_metric_history(self.id, metric))
