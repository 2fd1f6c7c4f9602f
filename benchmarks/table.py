"""Measurements as rows and as a text table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

COLUMNS = {  # key of a row -> title and format in the table
    "program": ("program", "{}"),
    "size": ("size", "{}"),
    "precision": ("precision", "{}"),
    "tokens_per_second": ("target tokens/s", "{:,.0f}"),
    "ratio": ("ratio", "{:.2f}"),
    "memory_mb": ("peak memory, MB", "{:,.0f}"),
}
Round = Mapping[str, float]


def rate(rounds: Sequence[Round], what: str) -> float:
    """`what` per second: the median over the rounds."""
    return median(counts[what] / counts["seconds"] for counts in rounds)


def row_of(setting: Mapping[str, str], rounds: Sequence[Round]) -> dict:
    """The row of one program at one size and precision."""
    return {
        "program": setting["program"],
        "size": setting["size"],
        "precision": setting["precision"],
        "device": setting["device"],
        "tokens_per_second": rate(rounds, "target_tokens"),
        "memory_mb": max(counts["memory"] for counts in rounds) / 1e6,
        "rounds": [counts["target_tokens"] / counts["seconds"] for counts in rounds],
    }


def with_ratios(rows: Sequence[dict]) -> list[dict]:
    """The rows with a ratio: how many times as fast this trainer is at the same size, at its faster precision."""
    done = []
    for row in rows:
        ours = [r["tokens_per_second"] for r in rows if r["program"] == "ours" and r["size"] == row["size"]]
        done.append(row | {"ratio": max(ours) / row["tokens_per_second"] if ours else None})
    return done


def summary(rows: Sequence[Mapping]) -> list[str]:
    """A line per size: how many times as fast this trainer is as each other program, both at their fastest."""
    lines = []
    for size in dict.fromkeys(row["size"] for row in rows):
        best: dict[str, Mapping] = {}
        for row in sorted((row for row in rows if row["size"] == size), key=lambda row: row["tokens_per_second"]):
            best[row["program"]] = row
        ours = best.pop("ours", None)
        if ours and best:
            peers = sorted(best.values(), key=lambda row: row["ratio"])
            ratios = ", ".join(f"{row['ratio']:.1f} x {row['program']} ({row['precision']})" for row in peers)
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
