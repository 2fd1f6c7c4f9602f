"""Measurements as a text table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def text_table(rows: Sequence[Mapping], columns: Mapping[str, tuple[str, str]]) -> str:
    """The rows as text in aligned columns. columns: key of a row -> title and format."""
    cells = [[title for title, _ in columns.values()]]
    for row in rows:
        cells.append(["–" if row[key] is None else form.format(row[key]) for key, (_, form) in columns.items()])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    sides = ["<" if rows and isinstance(rows[0][key], str) else ">" for key in columns]
    lines = [[f"{cell:{side}{width}}" for cell, side, width in zip(line, sides, widths, strict=True)] for line in cells]
    return "\n".join("  ".join(line).rstrip() for line in lines)
