"""The columns of MLflow's tables of runs and of means over seeds: scores, and the knobs whose values differ."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow import MlflowClient

# The tag that selects the columns. The page's "share" button writes the same tag under a generated name. It is
# undocumented, so the version of mlflow is pinned and a test searches its pages for the words.
VIEW, SEEDS_VIEW = "compare", "seeds"
TAGS = "mlflow.sharedViewState."
TAG = f"{TAGS}{VIEW}"
SCORES = ["bleu", "valid_bleu", "delta_bleu", "p_bootstrap"]
SEEDS_SCORES = ["bleu", "bleu_deviation", "valid_bleu", "valid_bleu_deviation", "seeds"]
KNOBS = [
    "corpus",
    "warmup",
    "beam_size",
    "lr_factor",
    "d_model",
    "layers",
    "max_steps",
    "batch_tokens",
    "dropout",
    "length_penalty",
    "seed",
]
# Without the means over seeds (seeds.py), and without double runs that a member of a team may not delete (sync.py).
RUNS = "tags.seeds_parent IS NULL AND tags.duplicate_of IS NULL"
SEEDS = "tags.seeds_parent IS NOT NULL"


def view(knobs: Iterable[str], scores: Sequence[str] = SCORES, search: str = RUNS) -> str:
    """The value of a tag: columns for scores and knobs, the runs that a search finds, the best test BLEU first."""
    columns = [f"metrics.`{score}`" for score in scores] + [f"params.`{knob}`" for knob in knobs]
    order = {"columnOrder": columns, "orderByKey": columns[0], "orderByAsc": False, "searchFilter": search}
    widths = {column: 7 * len(column) - 30 for column in columns}  # pixels: just enough for the name
    return json.dumps({"selectedColumns": columns, "columnWidths": widths} | order)


def show_differing_params(client: MlflowClient, experiment_id: str) -> bool:
    """Make the tables show the knobs whose values differ between runs; if none differ, KNOBS.

    Returns whether there are means over seeds, which have a table of their own.
    """
    knobs = differing(client, experiment_id, RUNS) or KNOBS
    client.set_experiment_tag(experiment_id, TAG, view(knobs))
    if not client.search_runs([experiment_id], SEEDS, max_results=1):
        return False
    knobs = differing(client, experiment_id, SEEDS) or [knob for knob in KNOBS if knob != "seed"]
    client.set_experiment_tag(experiment_id, f"{TAGS}{SEEDS_VIEW}", view(knobs, SEEDS_SCORES, SEEDS))
    return True


def differing(client: MlflowClient, experiment_id: str, search: str) -> list[str]:
    """The knobs whose values differ between the runs that a search finds."""
    runs = client.search_runs([experiment_id], search, max_results=1000)
    names = dict.fromkeys(KNOBS + sorted({name for run in runs for name in run.data.params}))
    return [name for name in names if len({run.data.params.get(name) for run in runs}) > 1]
