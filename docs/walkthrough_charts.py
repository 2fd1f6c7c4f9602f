"""What docs/walkthrough.py shows: the source of functions, prose with computed numbers, tables, and charts as SVG.

Each function returns an object that a notebook displays as the result of a cell. Nothing here computes a result.
"""

from __future__ import annotations

import inspect
import itertools
import json
import re
import textwrap
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import vl_convert

from transformer.reporting.charts import VEGA_LITE, Chart, specification, theme

ROOT = Path(__file__).resolve().parent.parent
POSITIVE, NEGATIVE = theme()["range"]["category"]
MUTED = theme()["axis"]["labelColor"]
# Five colours that colour-blind readers can tell apart (Okabe and Ito 2008), darkened for thin lines on white.
SERIES = [POSITIVE, NEGATIVE, "#00805f", "#9a3f78", "#6f6000"]
SMALLEST = 0.64  # of its size; on a narrower window a chart scrolls instead of becoming unreadable
DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [10, 4]]
# A colour of the charts -> the variable of the page's style that replaces it, so that charts follow dark and light.
VARIABLES = {theme()["legend"]["labelColor"]: "ink", MUTED: "muted", theme()["axis"]["gridColor"]: "line"} | {
    colour: f"series-{number}" for number, colour in enumerate(SERIES, start=1)
}
_numbers = itertools.count(1)


class Shown:
    """Something that a notebook displays. kind: its MIME type."""

    def __init__(self, kind: str, text: str):
        self.kind, self.text = kind, text

    def _repr_mimebundle_(self, **settings: Any) -> dict[str, str]:
        return {self.kind: self.text}


def say(text: str) -> Shown:
    """Prose in Markdown, whose numbers the cell has computed."""
    return Shown("text/markdown", textwrap.dedent(text).strip())


def source(*parts: Any) -> Shown:
    """The source of functions, methods or classes of the package as it is now, each under its file and line."""
    blocks = []
    for part in map(inspect.unwrap, parts):  # without torch's decorators
        lines, first = inspect.getsourcelines(part)
        path = Path(inspect.getsourcefile(part) or "").resolve().relative_to(ROOT).as_posix()
        code = textwrap.dedent("".join(lines)).rstrip()
        blocks.append(f"[`{path}`](../{path}), line {max(1, first)}:\n\n```python\n{code}\n```")
    return Shown("text/markdown", "\n\n".join(blocks))


def table(frame: pd.DataFrame, caption: str = "") -> Shown:
    """A table without an index, with a caption."""
    html = frame.to_html(index=False, border=0, justify="left", float_format=lambda value: f"{value:,.4g}")
    return Shown(
        "text/html",
        f'<figure>\n<div class="scroll" tabindex="0">{html}</div>\n'
        f"<figcaption>{marked_up(caption)}</figcaption></figure>",
    )


def figure(chart: Chart, caption: str) -> Shown:
    """A chart as SVG with its caption. The caption also names it for who cannot see it."""
    # vl-convert measures text in Liberation Sans; the padding is room for browsers that draw it wider
    look = theme(font="Liberation Sans, Arial, sans-serif") | {
        "aria": False,
        "padding": {"left": 16, "right": 20, "top": 4, "bottom": 10},
    }
    picture = vl_convert.vegalite_to_svg(specification(chart) | {"config": look}, VEGA_LITE)
    picture = re.sub(r' d="[^"]+"', lambda path: rounded(path[0]), picture)  # a third of the bytes
    number = next(_numbers)  # two charts of a page must not have parts of the same name
    picture = re.sub(r'(id="|url\(#)(clip|gradient)', rf"\g<1>figure{number}-\g<2>", picture)
    for colour, name in VARIABLES.items():
        picture = picture.replace(colour, f"var(--{name}, {colour})")
    least = SMALLEST * float(picture.split(' width="')[1].split('"')[0])
    attributes = f'role="img" style="min-width: {least:.0f}px" aria-label="{escape(plain(caption))}"'
    picture = picture.replace("<svg ", f"<svg {attributes} ", 1)
    return Shown(
        "text/html",
        f'<figure>\n<div class="scroll" tabindex="0">{picture}</div>\n'
        f"<figcaption>{marked_up(caption)}</figcaption></figure>",
    )


def rounded(path: str) -> str:
    """A path of an SVG whose coordinates have two decimals."""
    return re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", path)


def plain(caption: str) -> str:
    """A caption without the marks of code."""
    return caption.replace("`", "")


def marked_up(caption: str) -> str:
    """A caption as HTML; `code` is set as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(caption))


def lines(
    frame: pd.DataFrame, x: str, y: str, series: str = "", log_x: bool = False, log_y: bool = False, zero: bool = False
) -> Chart:
    """Curves: the columns x and y, a curve for each value of the column `series`, told apart by colour and dashes."""

    values = frame[x].unique().tolist()[::2] if log_x else alt.Undefined
    axes = {
        "x": alt.X(
            f"{x}:Q",
            axis=alt.Axis(grid=False, values=values, tickCount=8),
            scale=alt.Scale(type="log" if log_x else "linear", zero=zero and not log_x, nice=False),
        ),
        "y": alt.Y(
            f"{y}:Q",
            axis=alt.Axis(tickCount=5),
            scale=alt.Scale(type="log" if log_y else "linear", zero=zero and not log_y),
        ),
    }
    if series:
        names = list(dict.fromkeys(frame[series]))
        legend = alt.Legend(orient="top", labelLimit=0, columns=2, columnPadding=28, title=None, symbolSize=300)
        axes["color"] = alt.Color(f"{series}:N", sort=names, legend=legend, scale=alt.Scale(domain=names, range=SERIES))
        axes["strokeDash"] = alt.StrokeDash(f"{series}:N", scale=alt.Scale(domain=names, range=DASHES), legend=legend)
    return alt.Chart(frame).mark_line(strokeWidth=2.2).encode(**axes).properties(width=420, height=240)


def bars(frame: pd.DataFrame, x: str, y: str, series: str = "", text: str = ".3~g") -> Chart:
    """Horizontal bars with their values: the number in column x for each row, which column y names."""
    names = alt.Y(f"{y}:N", title=None, sort=None, axis=alt.Axis(ticks=False, labelLimit=0, labelPadding=8))
    axes: dict[str, Any] = {"x": alt.X(f"{x}:Q", axis=alt.Axis(tickCount=5)), "y": names}
    if series:
        order, legend = list(dict.fromkeys(frame[series])), alt.Legend(orient="top", labelLimit=0, title=None)
        axes["color"] = alt.Color(f"{series}:N", scale=alt.Scale(domain=order, range=SERIES), legend=legend)
        axes["yOffset"] = alt.YOffset(f"{series}:N", sort=order)
    drawn = alt.Chart(frame).mark_bar().encode(**axes)
    values = (
        alt.Chart(frame)
        .mark_text(align="left", dx=5)
        .encode(**{name: axis for name, axis in axes.items() if name != "color"}, text=alt.Text(f"{x}:Q", format=text))
    )
    return alt.layer(drawn, values).properties(width=320, height=24 * len(frame))


def labels_of(names: Sequence[str]) -> str:
    """An expression of Vega that shows names in the place of their numbers, since two may be equal."""
    return f"{json.dumps(list(names), ensure_ascii=False)}[datum.value]"


def heatmap(
    values: Any,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    title: str = "",
    cell: float = 18,
    row_title: str | None = None,
    column_title: str | None = None,
) -> Chart:
    """A matrix as squares: blue above 0, orange below; the deeper, the larger the number.

    rows, columns: the label of each row and column. cell: the side of a square, in pixels.
    """
    matrix = [[float(value) for value in row] for row in values]
    largest = max((abs(value) for row in matrix for value in row), default=0.0) or 1.0
    squares = [
        {"row": i, "column": j, "strength": round(abs(value) / largest, 3), "positive": value >= 0}
        for i, row in enumerate(matrix)
        for j, value in enumerate(row)
        if abs(value) > 0.01 * largest
    ]
    colour = alt.Color("positive:N", legend=None, scale=alt.Scale(domain=[True, False], range=[POSITIVE, NEGATIVE]))
    depth = alt.Opacity("strength:Q", legend=None, scale=alt.Scale(domain=[0, 1], range=[0, 1]))
    chart = (
        alt.Chart(pd.DataFrame(squares, columns=["row", "column", "strength", "positive"]))
        .mark_rect()
        .encode(
            alt.X("column:O", title=column_title, **places(len(matrix[0]), columns, orient="top", labelAngle=-60)),
            alt.Y("row:O", title=row_title, **places(len(matrix), rows)),
            colour,
            depth,
        )
    )
    chart = chart.properties(title=alt.Title(title, fontSize=12, anchor="start")) if title else chart
    box = alt.ViewConfig(stroke=MUTED)
    return chart.properties(width=cell * len(matrix[0]), height=cell * len(matrix), view=box)


def places(count: int, labels: Sequence[str] | None, **look: Any) -> dict[str, Any]:
    """Axis and scale of the rows or columns of a matrix: `count` places, with labels or without."""
    shown: dict[str, Any] = {"labels": False}
    if labels:
        shown = {"labelExpr": labels_of(labels), "labelLimit": 0, "labelOverlap": False, **look}
    axis = alt.Axis(grid=False, ticks=False, domain=False, titleFontSize=12, **shown)
    return {"axis": axis, "scale": alt.Scale(domain=list(range(count)), padding=0.04)}


def side_by_side(charts: Sequence[Chart], columns: int) -> alt.ConcatChart:
    """Several charts in rows of so many columns."""
    return alt.concat(*charts, columns=columns, spacing=14)


def heads(weights: Any) -> alt.ConcatChart:
    """Thumbnails of attention weights (layers, H, T, S): a row of heads for each layer."""
    charts = [
        heatmap(head, title=f"layer {i}, head {j}", cell=9)
        for i, layer in enumerate(weights, start=1)
        for j, head in enumerate(layer, start=1)
    ]
    return side_by_side(charts, columns=len(weights[0]))


def tree(nodes: pd.DataFrame) -> Chart:
    """The tree of a beam search.

    nodes: step, place (rank among the beams of the step), label, kind (beam, finished or dropped), and the step and
    place of the parent.
    """
    x = alt.X("step:Q", title="subwords so far", axis=alt.Axis(tickMinStep=1, grid=False))
    y = alt.Y("place:Q", title=None, axis=None, scale=alt.Scale(reverse=True, padding=14))
    kinds = ["beam", "finished", "dropped"]
    legend = alt.Legend(orient="top", title=None)
    colour = alt.Color("kind:N", scale=alt.Scale(domain=kinds, range=[*SERIES[:2], MUTED]), legend=legend)
    shape = alt.Shape("kind:N", scale=alt.Scale(domain=kinds, range=["circle", "square", "cross"]), legend=legend)
    ends = alt.Y("parent_place:Q", title=None, axis=None), alt.X2("step:Q"), alt.Y2("place:Q")
    links = alt.Chart(nodes).mark_rule(opacity=0.6).encode(alt.X("parent_step:Q"), *ends)
    points = alt.Chart(nodes).mark_point(filled=True, size=70, opacity=1).encode(x, y, colour, shape)
    words = alt.Chart(nodes).mark_text(dy=-11, fontSize=11).encode(x, y, text="label:N")
    return alt.layer(links, points, words).properties(width=66 * (max(nodes["step"]) + 1), height=330)
