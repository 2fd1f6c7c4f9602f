"""The effect of each knob on BLEU, measured between runs that are equal in all else: knobs, data and versions."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from math import inf
from statistics import mean, stdev

from transformer.evaluation.comparison import MADE_FROM, System, differing_knobs, equal_but_for, join_names, what_else

SCORES = ("bleu", "valid_bleu")
NO_EFFECT = ("corpus", "source", "target", "seed")  # another text is not compared, and another seed is chance


def families(runs: Sequence[System], knob: str) -> list[list[System]]:
    """Groups of at least two runs that differ in nothing but `knob`, each ordered by the value of `knob`."""
    groups = [group for group in equal_but_for(knob, runs) if len(group) > 1]
    return [sorted(group, key=lambda run: order(run.params[knob])) for group in groups]


def order(value: object) -> tuple[float, str]:
    """A sort key for values of knobs: numbers by size, then words in alphabetical order."""
    return (float(value), "") if isinstance(value, int | float) else (inf, str(value))


def effects(runs: Sequence[System]) -> list[dict]:
    """A row per knob but seed, and pair of values, the lowest and another: number of pairs, mean change, deviation."""
    rows = []
    for knob in differing_knobs(runs):
        if knob in NO_EFFECT:
            continue
        changes: dict[tuple, list[tuple[System, System]]] = {}
        for first, *later in families(runs, knob):
            for run in later:
                changes.setdefault((first.params[knob], run.params[knob]), []).append((first, run))
        for (low, high), pairs in sorted(changes.items(), key=lambda item: tuple(map(order, item[0]))):
            row: dict = {"knob": knob, "from": low, "to": high, "pairs": len(pairs)}
            for score in SCORES:
                gains = [run.scores[score] - first.scores[score] for first, run in pairs]
                row[score] = round(mean(gains), 2)
                row[f"{score}_deviation"] = round(stdev(gains), 2) if len(gains) > 1 else None
            rows.append(row)
    return rows


def score_table(runs: Sequence[System]) -> list[dict]:
    """A row per run, the best on valid first: name, scores, and what differs between the runs.

    Differing knobs are shown by value; data, code and versions by a short hash, equal where they agree.
    """
    ranked = sorted(runs, key=lambda run: -run.scores["valid_bleu"])
    knobs = differing_knobs(runs)
    marks = [{part: mark(run, part) for part in MADE_FROM} for run in ranked]
    parts = [part for part in MADE_FROM if len({each[part] for each in marks}) > 1]
    return [
        {
            "name": run.name,
            **{score: round(run.scores[score], 2) for score in SCORES},
            **{knob: run.params.get(knob) for knob in knobs},
            **{part: each[part] for part in parts},
        }
        for run, each in zip(ranked, marks, strict=True)
    ]


def mark(run: System, part: str) -> str:
    """A short hash of the data, code or versions of a run."""
    return sha256(repr(sorted(run.made_from.get(part, {}).items())).encode()).hexdigest()[:7]


def remarks(runs: Sequence[System]) -> list[str]:
    """What differs besides the knobs between the best run on valid and each group of other runs, a line a group."""
    best, *rest = sorted(runs, key=lambda run: -run.scores["valid_bleu"])
    groups: dict[str, list[str]] = {}
    for run in rest:
        if difference := what_else(best, run):
            groups.setdefault(difference, []).append(run.name)
    return [f"{join_names(names)} and {best.name} differ also in {difference}" for difference, names in groups.items()]
