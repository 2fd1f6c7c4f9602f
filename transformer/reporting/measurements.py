"""What trainings gave here: recipes/sizes.csv by the size of the text, recipes/gains.csv by what was changed."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from math import log
from pathlib import Path
from typing import Any

LEAST_GAIN = 0.5  # BLEU: less is what another seed may give


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a table of measurements, from column to text."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def nearest(rows: Iterable[Mapping[str, str]], pairs: int) -> int:
    """The size among those of `rows` that is nearest to a number of pairs, by its logarithm."""
    return min({int(row["pairs"]) for row in rows}, key=lambda size: abs(log(size / max(pairs, 1))))


def expectation(recipes: Path, pairs: int) -> str:
    """What models had here that learnt from about so many pairs, as a sentence."""
    rows = rows_of(recipes / "sizes.csv")
    size = nearest(rows, pairs)
    parts = [
        f"{row['text']} {row['direction']}, BLEU {row['bleu']}, chrF {row['chrf']}, in {row['minutes']} minutes"
        for row in rows
        if int(row["pairs"]) == size
    ]
    return f"What {size:,} pairs gave here, on one core: {'; '.join(parts)} (docs/your-text.md#what-to-expect)."


def next_steps(recipes: Path, knobs: Mapping[str, Any], pairs: int, training: Mapping[str, Any]) -> list[str]:
    """What may give better scores than a training with these knobs had, in sentences, with what each gave here.

    training: of training.json. A longer training first, if the last update was the best; then more text, by the next
    size; then each line of gains.csv whose knob has its value `off`, and that gained LEAST_GAIN or more at the nearest
    size.
    """
    steps, sizes = [], rows_of(recipes / "sizes.csv")
    if training.get("best_step") == (last := knobs["max_steps"]):
        command = f"dvc exp run -S max_steps={2 * last}, which goes on with this training"
        steps.append(f"More updates: the loss on valid still fell at the last one. Type: {command}")
    size = nearest(sizes, pairs)
    for text, direction in dict.fromkeys((row["text"], row["direction"]) for row in sizes):
        scores = {
            int(row["pairs"]): row["bleu"] for row in sizes if (row["text"], row["direction"]) == (text, direction)
        }
        if size in scores and (more := min((other for other in scores if other > size), default=0)):
            grown = f"BLEU {scores[size]} with {size:,} pairs and {scores[more]} with {more:,}"
            steps.append(f"More pairs: {text} {direction} had {grown}.")
    gains = rows_of(recipes / "gains.csv")
    for knob in dict.fromkeys(row["knob"] for row in gains):
        rows = [row for row in gains if row["knob"] == knob]
        size = nearest(rows, pairs)
        for row in (row for row in rows if int(row["pairs"]) == size and str(knobs[knob]) == row["off"]):
            gain = float(row["after"]) - float(row["before"])
            if gain >= LEAST_GAIN:
                text = f"{size:,} pairs of {row['text']} {row['direction']}"
                steps.append(f"{row['means']}: {gain:+.1f} BLEU with {text}. Type: dvc exp run {row['options']}")
    return steps
