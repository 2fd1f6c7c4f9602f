"""Which columns MLflow's table of runs shows: the scores, and the knobs that are not the same in all rows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow import MlflowClient

# What the runs table shows at once. The tag is what the page's "share" button writes, under a name of ours; it is
# undocumented, so mlflow is pinned and a test looks for the words in its pages.
VIEW = "compare"
TAG = f"mlflow.sharedViewState.{VIEW}"
SCORES = ["bleu", "valid_bleu", "delta_bleu", "p_bootstrap"]
KNOBS = ["corpus", "warmup", "beam_size", "lr_factor", "d_model", "layers", "max_steps", "batch_tokens", "dropout",
         "length_penalty", "seed"]  # fmt: skip


def view(knobs: Iterable[str]) -> str:
    """What the runs table shows at once: the scores, best first, and some knobs."""
    columns = [f"metrics.`{score}`" for score in SCORES] + [f"params.`{knob}`" for knob in knobs]
    order = {"columnOrder": columns, "orderByKey": columns[0], "orderByAsc": False}
    widths = {column: 7 * len(column) - 30 for column in columns}  # pixels: the name fits, and as many columns as can
    return json.dumps({"selectedColumns": columns, "columnWidths": widths} | order)


def show_differing_params(client: MlflowClient, experiment_id: str) -> None:
    """Have the table show the knobs that are not the same in all rows; of one row alone, the usual ones."""
    runs = client.search_runs([experiment_id], max_results=1000)
    names = dict.fromkeys(KNOBS + sorted({name for run in runs for name in run.data.params}))
    differ = [name for name in names if len({run.data.params.get(name) for run in runs}) > 1]
    client.set_experiment_tag(experiment_id, TAG, view(differ or KNOBS))
