"""Comparison of systems: significance over sentences and over seeds, what else differs, changed sentences."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from statistics import mean, stdev
from typing import Any

from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

from transformer.evaluation.bleu import bleu, bleu_of
from transformer.evaluation.intervals import SEED
from transformer.files import Mistake

MADE_FROM = ("data", "code", "versions")  # what scores are made from besides the knobs
SAMPLES = 10000  # of approximate randomisation


@dataclass(frozen=True)
class System:
    """One experiment: its knobs, its scores and, where a comparison needs them, score signatures and hypotheses.

    Translations by another program are a system without knobs, scores and signatures.
    made_from: what the scores were made from besides the knobs: data, code and versions, each name -> hash or version.
    machine: what the training ran on: processor, threads, ... It changes how sums are rounded.
    """

    name: str
    params: Mapping[str, object]
    scores: Mapping[str, float]
    signatures: Mapping[str, str] = field(default_factory=dict)
    hypotheses: Sequence[str] = ()
    made_from: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    machine: Mapping[str, str] = field(default_factory=dict)


def check_signatures(systems: Sequence[System]) -> None:
    """Raise Mistake if the systems' scores have different sacreBLEU signatures."""
    first = systems[0]
    for system in systems[1:]:
        for metric, signature in first.signatures.items():
            other = system.signatures.get(metric)
            if other != signature:
                raise Mistake(
                    f"{metric} of {first.name} has the signature {signature}, of {system.name} {other}. "
                    "Score both with the same version of sacreBLEU."
                )


def compare_with_first(systems: Sequence[System], references: Sequence[str]) -> list[dict]:
    """A row per system: its BLEU and, for all but the first, the difference from the first and a p-value.

    The knob `target` of the first that has it chooses how BLEU splits lines into tokens. p_randomisation is the chance
    of a difference as large between systems that are equally good on sentences like these, by approximate randomisation
    (Riezler and Maxwell 2005). It holds for these translations; trainings with other seeds differ more. With several
    comparisons, p_randomisation_holm is the p-value after Holm's correction (1979). Equal input gives equal rows.
    """
    os.environ["SACREBLEU_SEED"] = str(SEED)  # whatever the user has set
    named: list[tuple[str, Sequence[str]]] = [
        (str(index), list(system.hypotheses)) for index, system in enumerate(systems)
    ]
    language = next(str(system.params["target"]) for system in systems if system.params)
    exact = [bleu(lines, references, language) for _, lines in named]
    rows: list[dict] = [
        {"name": system.name, "bleu": round(score, 2)} for system, score in zip(systems, exact, strict=True)
    ]
    for row in rows[1:]:
        row["delta"] = round(row["bleu"] - rows[0]["bleu"], 2)
    if len(systems) > 1:
        test = PairedTest(named, {"BLEU": bleu_of(language)}, [list(references)], "ar", SAMPLES)
        results: Any = test()[1]["BLEU"][1:]
        for row, score, result in zip(rows[1:], exact[1:], results, strict=True):
            # for a difference of 0, p is 1: sacreBLEU counts only larger differences, and equal systems have none
            row["p_randomisation"] = 1.0 if score == exact[0] else round(result.p_value, 4)
        correct(rows, "p_randomisation")
    return rows


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values after Holm's correction for their number (1979).

    The k-th smallest of n is multiplied by n - k + 1; none may be below the one before it.
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    scaled = [min(1.0, p_values[index] * (len(order) - rank)) for rank, index in enumerate(order)]
    corrected = dict(zip(order, accumulate(scaled, max), strict=True))
    return [corrected[index] for index in range(len(p_values))]


def correct(rows: Sequence[dict], column: str) -> None:
    """Add `<column>_holm` to the rows that have a p-value in `column`, if these are at least two."""
    tested = [row for row in rows if row.get(column) is not None]
    if len(tested) > 1:
        for row, p_value in zip(tested, holm([row[column] for row in tested]), strict=True):
            row[f"{column}_holm"] = round(p_value, 4)


def equal_but_for(knob: str, systems: Sequence[System]) -> list[list[System]]:
    """The systems in groups that agree in all knobs except `knob`, and in their data, versions and machine.

    Other code makes no other group, since a comment is other code: `what_else` names it.
    """
    groups: dict[str, list[System]] = {}
    for system in systems:
        knobs = {name: value for name, value in system.params.items() if name != knob}
        made_from = {part: sorted(names.items()) for part, names in system.made_from.items() if part != "code"}
        groups.setdefault(repr((sorted(knobs.items()), sorted(made_from.items()))), []).append(system)
    return list(groups.values())


def means_over_seeds(systems: Sequence[System], judged_by: str = "bleu") -> list[dict]:
    """A row per configuration without its seed: its seeds, mean and deviation of BLEU on test and on valid.

    A row with several seeds also has its difference from the first row, if that has several, and p_seeds: the
    probability of a difference as large between configurations whose trainings are equally good on average, by Welch's
    t-test (1947), which takes the seeds as independent; p_seeds_holm: see `compare_with_first`. judged_by: the score
    that these two compare, bleu (on test) or valid_bleu.
    """
    rows, values = [], []
    for alike in equal_but_for("seed", systems):
        results_by_seed: dict[object, System] = {}
        for system in alike:
            results_by_seed.setdefault(system.params.get("seed"), system)  # a run with two names counts once
        group = list(results_by_seed.values())
        row: dict = {
            "names": join_names([system.name for system in group]),
            "seeds": join_names(list(results_by_seed)),
            "runs": len(group),
        }
        for score in ("bleu", "valid_bleu"):
            scores = [system.scores[score] for system in group]
            row[f"{score}_mean"] = round(mean(scores), 2)
            row[f"{score}_deviation"] = round(stdev(scores), 2) if len(scores) > 1 else None
        values.append([system.scores[judged_by] for system in group])
        if len(rows) and len(group) > 1 and len(values[0]) > 1:
            row["delta"] = round(mean(values[-1]) - mean(values[0]), 2)
            row["p_seeds"] = welch(values[0], values[-1])
        rows.append(row)
    correct(rows, "p_seeds")
    return rows


def join_names(names: Sequence[object], most: int = 3) -> str:
    """Names as "a, b, c and 47 more". most: how many are given."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


def welch(first: Sequence[float], second: Sequence[float]) -> float | None:
    """The p-value of Welch's t-test; None where neither group varies, so that nothing can be said."""
    if len(set(first)) == len(set(second)) == 1:
        return None
    from scipy import stats  # imported here, since it takes 1.5 s

    result: Any = stats.ttest_ind(first, second, equal_var=False)
    return round(float(result.pvalue), 4)


def differing_knobs(systems: Sequence[System]) -> list[str]:
    """The knobs whose values differ between the systems, in the order of params.yaml."""
    names = dict.fromkeys(name for system in systems for name in system.params)
    return [name for name in names if len({repr(system.params.get(name)) for system in systems}) > 1]


def what_else(first: System, other: System, most: int = 3) -> str:
    """What differs between two systems besides the knobs: data, code, versions and machine; empty if nothing does.

    most: how many names are given of each of the four.
    """
    differences = []
    for part in (*MADE_FROM, "machine"):
        before, after = (
            dict({**system.made_from, "machine": system.machine}.get(part, {})) for system in (first, other)
        )
        names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        if part in ("versions", "machine"):
            names = [f"{name} {before.get(name, 'unknown')} -> {after.get(name, 'unknown')}" for name in names]
        differences += [f"{part}: {join_names(names, most)}"] if names else []
    return "; ".join(differences)


def changed_most(
    first: System, second: System, sources: Sequence[str], references: Sequence[str], count: int
) -> list[dict]:
    """The `count` sentences whose chrF differs most between two systems, the largest difference first."""
    score = CHRF().sentence_score
    rows = []
    for number, (source, reference, before, after) in enumerate(
        zip(sources, references, first.hypotheses, second.hypotheses, strict=True), start=1
    ):
        if before != after:
            change = score(after, [reference]).score - score(before, [reference]).score
            rows.append(
                {
                    "line": number,
                    "change": round(change, 1),
                    "source": source,
                    "reference": reference,
                    "before": before,
                    "after": after,
                }
            )
    return sorted(rows, key=lambda row: (-abs(row["change"]), row["line"]))[:count]
