"""What trainings gave here: recipes/sizes.csv by the size of the text, recipes/gains.csv by what was changed."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from math import log
from pathlib import Path
from typing import Any

LEAST_GAIN = 0.5  # BLEU: less is what another seed may give


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a table of measurements, from column to text."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def nearest_size(rows: Sequence[dict[str, str]], pairs: int) -> tuple[int, list[dict[str, str]]]:
    """The size among those of `rows` that is nearest to a number of pairs, by its logarithm, and the rows of it."""
    size = min({int(row["pairs"]) for row in rows}, key=lambda size: abs(log(size / max(pairs, 1))))
    return size, [row for row in rows if int(row["pairs"]) == size]


def expectation(recipes: Path, pairs: int) -> str:
    """What models had here that learnt from about so many pairs, as a sentence."""
    size, rows = nearest_size(rows_of(recipes / "sizes.csv"), pairs)
    parts = [
        f"{row['text']} {row['direction']}, BLEU {row['bleu']}, chrF {row['chrf']}, in {row['minutes']} minutes"
        for row in rows
    ]
    return f"What {size:,} pairs gave here, on one core: {'; '.join(parts)} (docs/your-text.md#what-to-expect)."


def next_steps(recipes: Path, knobs: Mapping[str, Any], pairs: int, training: Mapping[str, Any]) -> list[str]:
    """What may give better scores than a training with these knobs had, in sentences, with what each gave here.

    training: the contents of training.json. In this order: a longer training, if the last update was the best; more
    text; each change of gains.csv that is not made yet and that gained LEAST_GAIN or more at the nearest size.
    """
    steps, sizes = [], rows_of(recipes / "sizes.csv")
    if training.get("best_step") == (last := knobs["max_steps"]):
        command = f"dvc exp run -S max_steps={2 * last}, which goes on with this training"
        still = "BLEU on valid still rose" if "best_valid_bleu" in training else "the loss on valid still fell"
        steps.append(f"More updates: {still} at the last one. Type: {command}")
    size, rows = nearest_size(sizes, pairs)
    for row in rows:
        same = [other for other in sizes if (other["text"], other["direction"]) == (row["text"], row["direction"])]
        larger = [other for other in same if int(other["pairs"]) > size]
        if larger:
            more = min(larger, key=lambda other: int(other["pairs"]))
            grown = f"BLEU {row['bleu']} with {size:,} pairs and {more['bleu']} with {int(more['pairs']):,}"
            steps.append(f"More pairs: {row['text']} {row['direction']} had {grown}.")
    gains = rows_of(recipes / "gains.csv")
    for knob in dict.fromkeys(row["knob"] for row in gains):
        size, rows = nearest_size([row for row in gains if row["knob"] == knob], pairs)
        for row in rows:
            gain = float(row["after"]) - float(row["before"])
            if gain >= LEAST_GAIN and str(knobs[knob]) == row["off"]:
                text = f"{size:,} pairs of {row['text']} {row['direction']}"
                steps.append(f"{row['means']}: {gain:+.1f} BLEU with {text}. Type: dvc exp run {row['options']}")
    return steps
