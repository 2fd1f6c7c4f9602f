"""The columns of MLflow's table of runs: scores, and the knobs whose values differ."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pipeline.workflow.params import Params

if TYPE_CHECKING:
    from mlflow import MlflowClient

# The tag that selects the columns. The page's "share" button writes the same tag under a generated name. It is
# undocumented, so the version of mlflow is pinned and a test searches its pages for the words.
VIEW = "compare"
TAG = f"mlflow.sharedViewState.{VIEW}"
SCORES = ("bleu", "valid_bleu", "delta_bleu", "p_randomisation")
FEW_KNOBS = 5  # knobs that are shown when none differ


def view(knobs: Iterable[str]) -> str:
    """The value of the tag: columns for scores and knobs, the best test BLEU first."""
    columns = [f"metrics.`{score}`" for score in SCORES] + [f"params.`{knob}`" for knob in knobs]
    order = {"columnOrder": columns, "orderByKey": columns[0], "orderByAsc": False}
    widths = {column: 7 * len(column) - 30 for column in columns}  # pixels: just enough for the name
    return json.dumps({"selectedColumns": columns, "columnWidths": widths} | order)


def show_differing_params(client: MlflowClient, experiment_id: str) -> None:
    """Make the table show the knobs whose values differ between runs; if none differ, the first."""
    runs = client.search_runs([experiment_id], max_results=1000)
    names = list(dict.fromkeys([*Params.model_fields, *sorted({name for run in runs for name in run.data.params})]))
    differing = [name for name in names if len({run.data.params.get(name) for run in runs}) > 1]
    client.set_experiment_tag(experiment_id, TAG, view(differing or names[:FEW_KNOBS]))
