"""The report of a corpus as one HTML page: what the filter dropped, lengths, subwords, and test lines in train."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import pandas as pd

from transformer.reporting.charts import specification
from transformer.reporting.page import render

RULES = {  # name in filter.json -> what the rule drops
    "empty": "an empty side",
    "max_characters": "a side that is too long",
    "max_ratio": "one side much longer than the other",
    "identical": "two equal sides",
    "duplicates": "a pair, or a side, that occurred before",
    "min_alphabetic": "few letters on a side",
    "max_word": "a very long word",
    "numbers": "other numbers or addresses on one side",
    "script": "a script that the language does not use",
    "language": "another language, by py3langid",
}
OVERLAP = {
    "source_exact": "source, exactly",
    "source_near": "source, nearly",
    "target_exact": "target, exactly",
    "target_near": "target, nearly",
    "pairs": "both sides in one pair",
}


def data_page(filtered: Mapping[str, Any], subwords: Mapping[str, Any], languages: tuple[str, str], name: str) -> str:
    """The page of a corpus. filtered: filter.json. subwords: subwords.json. name: of the corpus."""
    chart = length_chart(filtered["lengths"], filtered["length_step"], languages)
    dropped = filtered["pairs"] - filtered["kept"]
    return render(
        "data",
        corpus=f"{name}, {languages[0]} to {languages[1]}",
        lead=f"{filtered['pairs']:,} training pairs. The filter kept {filtered['kept']:,} and dropped {dropped:,}.",
        rules=rule_rows(filtered),
        together=[{"rules": rules, "pairs": f"{count:,}"} for rules, count in filtered["together"].items()],
        examples={RULES[name]: rows for name, rows in filtered["examples"].items() if rows},
        splits=split_rows(filtered),
        subwords=subword_rows(subwords),
        overlap=[
            {"test set": name, "lines": f"{row['lines']:,}"}
            | {title: share(row[key], row["lines"]) for key, title in OVERLAP.items()}
            for name, row in filtered["overlap"].items()
        ],
        charts={"lengths": specification(chart)},
    )


def share(count: int, of: int) -> str:
    """A count, and its share in percent."""
    return f"{count:,} ({100 * count / max(1, of):.1f}%)" if count else "0"


def rule_rows(filtered: Mapping[str, Any]) -> list[dict[str, str]]:
    """A row for each rule that is on: pairs that it would drop, and those that no other rule would drop."""
    return [
        {
            "a training pair is dropped for": RULES[name],
            "pairs": share(count, filtered["pairs"]),
            "by this rule alone": share(filtered["alone"][name], filtered["pairs"]),
        }
        for name, count in filtered["fired"].items()
    ]


def split_rows(filtered: Mapping[str, Any]) -> list[dict[str, str]]:
    """A row for valid and each test set: its pairs, and how many of them the rules would drop from train."""
    return [
        {
            "split": name,
            "pairs": f"{row['pairs']:,}",
            "a rule fires for": share(row["pairs"] - row["kept"], row["pairs"]),
        }
        for name, row in filtered["others"].items()
    ]


def subword_rows(subwords: Mapping[str, Any]) -> list[dict[str, str]]:
    """A row for each split and side."""
    return [
        {
            "split": split,
            "side": side,
            "words": f"{row['words']:,}",
            "subwords": f"{row['subwords']:,}",
            "subwords per word": f"{row['subwords_per_word']:.3f}",
            "<unk>": f"{row['unknown_rate']:.3%}",
            "of the vocabulary": f"{row['vocabulary_coverage']:.1%}",
        }
        for split, sides in subwords.items()
        for side, row in sides.items()
    ]


def length_chart(lengths: list[list[int]], step: int, languages: tuple[str, str]) -> alt.Chart:
    """The training lines of each side by their number of characters."""
    names = [f"source, {languages[0]}", f"target, {languages[1]}"]
    used = max((place for counts in lengths for place, count in enumerate(counts) if count), default=0) + 1
    rows = [
        {"side": name, "from": step * place, "to": step * (place + 1), "middle": step * (place + 0.5), "lines": count}
        for name, counts in zip(names, lengths, strict=True)
        for place, count in enumerate(counts[:used])
    ]
    colour = alt.Color("side:N", title=None, sort=names, legend=alt.Legend(orient="top", labelLimit=0))
    last = f" (the last point: all from {step * (len(lengths[0]) - 1)} on)" if used == len(lengths[0]) else ""
    return (
        alt.Chart(pd.DataFrame(rows))
        .mark_line(strokeWidth=2, point=True)
        .encode(
            alt.X("middle:Q", title=f"characters of a line{last}"),
            alt.Y("lines:Q", title="training lines"),
            colour,
            tooltip=["side:N", "from:Q", "to:Q", alt.Tooltip("lines:Q", format=",d")],
        )
        .properties(width="container", height=260)
    )
