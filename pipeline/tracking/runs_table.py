"""The columns of MLflow's table of runs: scores, and the knobs whose values differ."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pipeline.tracking.labels import SETTINGS
from pipeline.workflow.params import Params

if TYPE_CHECKING:
    from mlflow import MlflowClient

# The tag that selects the columns. The page's "share" button writes the same tag under a generated name. It is
# undocumented, so the version of mlflow is pinned and a test searches its pages for the words.
VIEW = "compare"
TAG = f"mlflow.sharedViewState.{VIEW}"
SCORES = ("bleu", "valid_bleu", "delta_bleu")
P_VALUE = "p_randomisation"  # no column of a table of means: the mean of p-values means nothing
FEW_KNOBS = 5  # knobs that are shown when none differ
MEAN_WIDTHS = (143, 143, 115)  # pixels, for "95.4751 (average)" and "-0.12 (average)"


def view(knobs: Iterable[str], means: bool = False) -> str:
    """The value of the tag: columns for scores and knobs, the best test BLEU first. means: a row a setting."""
    columns = [f"metrics.`{score}`" for score in SCORES + (() if means else (P_VALUE,))]
    columns += [f"params.`{knob}`" for knob in knobs]
    widths = {column: 7 * len(column) - 30 for column in columns}  # pixels: just enough for the name
    state = {"selectedColumns": columns, "columnOrder": columns, "orderByKey": columns[0], "orderByAsc": False}
    if means:
        widths |= dict(zip(columns, MEAN_WIDTHS, strict=False))
        key = {"mode": "tag", "groupByData": SETTINGS}
        state["groupBy"] = {"aggregateFunction": "average", "groupByKeys": [key]}
    return json.dumps({**state, "columnWidths": widths})


def show_differing_params(client: MlflowClient, experiment_id: str) -> None:
    """Make the table show the knobs whose values differ between runs; if none differ, the first.

    If finished runs have the same settings, as with other seeds, the table has their means.
    """
    runs = client.search_runs([experiment_id], max_results=1000)
    names = list(dict.fromkeys([*Params.model_fields, *sorted({name for run in runs for name in run.data.params})]))
    differing = [name for name in names if len({run.data.params.get(name) for run in runs}) > 1]
    finished = [run.data.tags.get(SETTINGS, run.info.run_id) for run in runs if run.info.status == "FINISHED"]
    means = len(set(finished)) < len(finished)
    knobs = [name for name in differing if not (means and name == "seed")]
    client.set_experiment_tag(experiment_id, TAG, view(knobs or names[:FEW_KNOBS], means))
