"""Measurements as rows, as a text table and as a chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

COLUMNS = {  # key of a row -> title and format in the table
    "program": ("program", "{}"),
    "size": ("size", "{}"),
    "precision": ("precision", "{}"),
    "tokens_per_second": ("target tokens/s", "{:,.0f}"),
    "ratio": ("ratio", "{:.2f}"),
    "matrix_share": ("share of matrix rate", "{:.1%}"),
    "memory_mb": ("peak memory, MB", "{:,.0f}"),
    "padding_share": ("padding", "{:.1%}"),
}
Round = Mapping[str, float]


def rate(rounds: Sequence[Round], what: str) -> float:
    """`what` per second: the median over the rounds."""
    return median(one[what] / one["seconds"] for one in rounds)


def row_of(setting: Mapping[str, str], rounds: Sequence[Round], matrix_rate: float) -> dict:
    """The row of one program at one size and precision; matrix_rate in FLOP/s at that precision."""
    return {
        "program": setting["program"],
        "size": setting["size"],
        "precision": setting["precision"],
        "forced": setting["forced"],
        "batches": setting["batches"],
        "device": setting["device"],
        "tokens_per_second": rate(rounds, "target_tokens"),
        "matrix_share": rate(rounds, "flop") / matrix_rate,
        "memory_mb": max(one["memory"] for one in rounds) / 1e6,
        "padding_share": 1 - sum(one["tokens"] for one in rounds) / sum(one["positions"] for one in rounds),
        "matrix_rate_gflops": matrix_rate / 1e9,
        "rounds": [one["target_tokens"] / one["seconds"] for one in rounds],
    }


def with_ratios(rows: Sequence[dict]) -> list[dict]:
    """The rows with a ratio: how many times as fast this trainer is at the same size, at its faster precision."""
    done = []
    for row in rows:
        ours = [r["tokens_per_second"] for r in rows if r["program"] == "ours" and r["size"] == row["size"]]
        done.append(row | {"ratio": max(ours) / row["tokens_per_second"] if ours else None})
    return done


def marked(rows: Sequence[dict]) -> list[dict]:
    """The rows with "(forced)" after each precision that the program does not offer itself."""
    return [row | {"precision": f"{row['precision']} (forced)"} if row["forced"] else row for row in rows]


def summary(rows: Sequence[Mapping]) -> list[str]:
    """A line per size: how many times as fast this trainer is as each other program, both at their fastest."""
    lines = []
    for size in dict.fromkeys(row["size"] for row in rows):
        best: dict[str, Mapping] = {}
        for row in sorted((row for row in rows if row["size"] == size), key=lambda row: row["tokens_per_second"]):
            if not row["forced"]:
                best[row["program"]] = row
        ours = best.pop("ours", None)
        if ours and best:
            others = sorted(best.values(), key=lambda row: row["ratio"])
            ratios = ", ".join(f"{row['ratio']:.1f} x {row['program']} ({row['precision']})" for row in others)
            lines.append(f"{size}: ours ({ours['precision']}) is {ratios}")
    return lines


def text_table(rows: Sequence[Mapping], columns: Mapping[str, tuple[str, str]] = COLUMNS) -> str:
    """The rows as text in aligned columns, words on the left and numbers on the right of a column."""
    cells = [[title for title, _ in columns.values()]]
    for row in rows:
        cells.append(["–" if row[key] is None else form.format(row[key]) for key, (_, form) in columns.items()])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    sides = ["<" if rows and isinstance(rows[0][key], str) else ">" for key in columns]
    lines = [[f"{cell:{side}{width}}" for cell, side, width in zip(line, sides, widths, strict=True)] for line in cells]
    return "\n".join("  ".join(line).rstrip() for line in lines)


def draw(rows: Sequence[dict], path: Path) -> None:
    """Draw target tokens per second as bars, a panel per size, to an .svg file or a self-contained .html file."""
    import altair as alt
    import pandas as pd

    from transformer.reporting.charts import theme

    kept = [{key: row[key] for key in ("program", "size", "precision", "tokens_per_second")} for row in marked(rows)]
    bars = (
        alt.Chart(pd.DataFrame(kept))
        .mark_bar()
        .encode(
            alt.X("tokens_per_second:Q", title="target tokens per second, padding not counted"),
            alt.Y("program:N", title=None, sort="-x"),
            alt.Color("precision:N", title=None, legend=alt.Legend(orient="top")),
            yOffset="precision:N",
            row=alt.Row("size:N", title=None, sort=["tiny", "base"]),
        )
    )
    chart = bars.properties(width=560).resolve_scale(x="independent")
    look = theme(font="Liberation Sans, Arial, sans-serif", background="#ffffff") | {"padding": 16}
    drawn = alt.Chart.from_dict(chart.to_dict() | {"config": look})
    if path.suffix == ".html":
        drawn.save(str(path), inline=True)
    else:
        drawn.save(str(path))
