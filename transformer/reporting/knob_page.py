"""The scores of several runs and the effect of each knob on BLEU, as one HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from transformer.evaluation.comparison import System, differing_knobs
from transformer.evaluation.knob_effects import NO_EFFECT, SCORES, effects, families, order, remarks, score_table
from transformer.reporting.charts import Chart, specification
from transformer.reporting.page import number, render


def chart(runs: Sequence[System], knob: str) -> Chart | None:
    """BLEU on valid by the value of a knob, with a line through runs that are equal in all other knobs."""
    rows = [
        {"value": run.params[knob], "valid_bleu": run.scores["valid_bleu"], "line": line, "run": run.name}
        for line, family in enumerate(families(runs, knob))
        for run in family
    ]
    if not rows:
        return None
    values: list[Any] = sorted({run.params[knob] for run in runs}, key=order)
    x = alt.X("value:O", title=knob, sort=values)
    x = x.axis(labelAngle=0, grid=False)
    y = alt.Y("valid_bleu:Q", title="BLEU on valid", axis=alt.Axis(minExtent=46)).scale(zero=False)
    tooltip = ["run:N", "value:O", alt.Tooltip("valid_bleu:Q", format=".2f")]
    lines = alt.Chart(pd.DataFrame(rows)).mark_line(point=True, strokeWidth=2, opacity=0.8)
    return lines.encode(x, y, detail="line:N", tooltip=tooltip).properties(width="container", height=200)


def page(runs: Sequence[System], left_out: Sequence[str] = ()) -> str:
    """Scores, effects and a chart per knob as a self-contained HTML page.

    left_out: a line for each result that is not shown, with the reason.
    """
    charts = {knob: chart(runs, knob) for knob in differing_knobs(runs) if knob not in NO_EFFECT}
    drawn = {knob: specification(drawing) for knob, drawing in charts.items() if drawing is not None}

    def cell_texts(rows: list[dict]) -> list[dict]:
        scores = {name for row in rows for name in row if name.startswith(SCORES)}
        return [{name: number(value, 2) if name in scores else value for name, value in row.items()} for row in rows]

    lead = f"{len(runs)} runs from DVC's experiments, commits and this folder, the best on valid first."
    return render(
        "experiments",
        lead=lead,
        scores=cell_texts(score_table(runs)),
        remarks=remarks(runs),
        left_out=left_out,
        effects=cell_texts(effects(runs)),
        charts=drawn,
    )
