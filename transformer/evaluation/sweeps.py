"""The effect of each knob on BLEU, measured between runs that are equal in all other knobs."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from statistics import mean, stdev

from transformer.evaluation.comparison import System, differing, equal_but_for

SCORES = ("bleu", "valid_bleu")
TASK = ("corpus", "corpus_path", "source", "target")  # runs on different text are not compared


def families(runs: Sequence[System], knob: str) -> list[list[System]]:
    """Groups of at least two runs that differ only in `knob`, each ordered by the value of `knob`."""
    groups = [group for group in equal_but_for(knob, runs) if len(group) > 1]
    return [sorted(group, key=lambda run: order(run.params[knob])) for group in groups]


def order(value: object) -> tuple[float, str]:
    """A sort key for values of knobs: numbers by size, then words in alphabetical order."""
    return (float(value), "") if isinstance(value, int | float) else (inf, str(value))


def effects(runs: Sequence[System]) -> list[dict]:
    """A row per knob and pair of values, the lowest and another: number of pairs of runs, mean change and deviation."""
    rows = []
    for knob in differing(runs):
        if knob in TASK:
            continue
        changes: dict[tuple, list[tuple[System, System]]] = {}
        for first, *others in families(runs, knob):
            for other in others:
                changes.setdefault((first.params[knob], other.params[knob]), []).append((first, other))
        for (low, high), found in sorted(changes.items(), key=lambda item: tuple(map(order, item[0]))):
            row: dict = {"knob": knob, "from": low, "to": high, "pairs": len(found)}
            for score in SCORES:
                gains = [other.scores[score] - first.scores[score] for first, other in found]
                row[score] = round(mean(gains), 2)
                row[f"{score}_deviation"] = round(stdev(gains), 2) if len(gains) > 1 else None
            rows.append(row)
    return rows


def score_table(runs: Sequence[System]) -> list[dict]:
    """A row per run, the best on valid first: name, scores, and the knobs that differ between the runs."""
    ranked = sorted(runs, key=lambda run: -run.scores["valid_bleu"])
    knobs = differing(runs)
    return [{"name": run.name, **{score: round(run.scores[score], 2) for score in SCORES},
             **{knob: run.params.get(knob) for knob in knobs}} for run in ranked]  # fmt: skip
