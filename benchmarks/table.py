"""Measurements as a text table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd


def text_table(rows: Sequence[Mapping], columns: Mapping[str, str]) -> str:
    """The rows as text. columns: key of a row -> its title."""
    table = pd.DataFrame([{title: row[key] for key, title in columns.items()} for row in rows])
    return table.to_string(index=False, float_format="{:,.2f}".format, na_rep="–")
