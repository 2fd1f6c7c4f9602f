"""Charts as SVG and PNG, on a white background."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import pandas as pd
import vl_convert

from transformer.reporting.charts import (
    VEGA_LITE,
    bleu_chart,
    loss_lines,
    perplexity_chart,
    round_numbers,
    specification,
    theme,
    thin,
)

LOOK = theme(font="Liberation Sans, Arial, sans-serif", background="#ffffff") | {"padding": 16}
WIDTH = 760  # pixels, where a page would give a chart its own width


def curves_picture(curves: pd.DataFrame) -> str:
    """The curves of a training as SVG: the losses, the perplexity on valid, and BLEU on valid if it was computed."""
    parts = [loss_lines(round_numbers(thin(curves))).properties(width=WIDTH, height=300)]
    parts += [chart.properties(width=WIDTH) for chart in (perplexity_chart(curves), bleu_chart(curves)) if chart]
    return svg(specification(alt.vconcat(*parts, spacing=24)))


def chart_files(charts: Mapping[str, Mapping[str, Any]]) -> dict[str, bytes]:
    """The charts of a page, name -> specification, as files: name.svg and name.png."""
    files = {}
    for name, chart in charts.items():
        wide = {**chart, "width": WIDTH}
        files |= {f"{name}.svg": svg(wide).encode("utf-8"), f"{name}.png": png(wide)}
    return files


def svg(chart: Mapping[str, Any]) -> str:
    """A chart in Vega-Lite as SVG."""
    return vl_convert.vegalite_to_svg({**chart, "config": LOOK}, VEGA_LITE)


def png(chart: Mapping[str, Any]) -> bytes:
    """A chart in Vega-Lite as PNG, with two pixels for one."""
    return vl_convert.vegalite_to_png({**chart, "config": LOOK}, VEGA_LITE, scale=2)
