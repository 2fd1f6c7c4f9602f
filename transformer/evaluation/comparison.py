"""Comparison of systems: paired significance tests by sacreBLEU, mean and deviation over seeds, changed sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, stdev
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

from transformer.evaluation.scores import bleu

TESTS = {"bs": "p_bootstrap", "ar": "p_randomisation"}  # Koehn 2004; Riezler and Maxwell 2005
SAMPLES = {"bs": 1000, "ar": 10000}


@dataclass(frozen=True)
class System:
    """One experiment: its knobs, its scores and, where a comparison needs them, score signatures and hypotheses."""

    name: str
    params: Mapping[str, object]
    scores: Mapping[str, float]
    signatures: Mapping[str, str] = field(default_factory=dict)
    hypotheses: Sequence[str] = ()


def check_signatures(systems: Sequence[System]) -> None:
    """Raise ValueError if the systems' scores have different sacreBLEU signatures."""
    first = systems[0]
    for system in systems[1:]:
        for metric, signature in first.signatures.items():
            other = system.signatures.get(metric)
            if other != signature:
                raise ValueError(
                    f"{metric} of {first.name} has the signature {signature}, of {system.name} {other}. "
                    "Score both with the same version: run dvc exp run again."
                )


def against_the_first(systems: Sequence[System], references: Sequence[str]) -> list[dict]:
    """A row per system: its BLEU and, for all but the first, the difference from the first and two p-values.

    A p-value is the probability of a difference as large between equally good systems. Equal input gives equal rows.
    """
    named: list[tuple[str, Sequence[str]]] = [
        (str(place), list(system.hypotheses)) for place, system in enumerate(systems)
    ]
    exact = [bleu(lines, references) for _, lines in named]
    rows: list[dict] = [
        {"name": system.name, "bleu": round(score, 2)} for system, score in zip(systems, exact, strict=True)
    ]
    for row in rows[1:]:
        row["delta"] = round(row["bleu"] - rows[0]["bleu"], 2)
    for kind, column in TESTS.items() if len(systems) > 1 else ():
        test = PairedTest(named, {"BLEU": BLEU()}, [list(references)], kind, SAMPLES[kind])
        results: Any = test()[1]["BLEU"][1:]
        for row, score, found in zip(rows[1:], exact[1:], results, strict=True):
            # for a difference of 0, p is 1: sacreBLEU counts only larger differences, and equal systems have none
            row[column] = 1.0 if score == exact[0] else round(found.p_value, 4)
    return rows


def equal_but_for(knob: str, systems: Sequence[System]) -> list[list[System]]:
    """The systems in groups that agree in all knobs except `knob`."""
    groups: dict[str, list[System]] = {}
    for system in systems:
        others = {name: value for name, value in system.params.items() if name != knob}
        groups.setdefault(repr(sorted(others.items())), []).append(system)
    return list(groups.values())


def over_seeds(systems: Sequence[System]) -> list[dict]:
    """A row per configuration without its seed: number of runs, mean and deviation of BLEU on test and on valid."""
    rows = []
    for found in equal_but_for("seed", systems):
        by_seed: dict[object, System] = {}
        for system in found:
            by_seed.setdefault(system.params.get("seed"), system)  # a run with two names counts once
        group = list(by_seed.values())
        row: dict = {"names": ", ".join(system.name for system in group), "runs": len(group)}
        for score in ("bleu", "valid_bleu"):
            values = [system.scores[score] for system in group]
            row[f"{score}_mean"] = round(mean(values), 2)
            row[f"{score}_deviation"] = round(stdev(values), 2) if len(values) > 1 else None
        rows.append(row)
    return rows


def sentence_scores(references: Sequence[str], hypotheses: Sequence[str]) -> list[float]:
    """Sentence-level chrF of each hypothesis against its reference."""
    metric = CHRF()
    return [metric.sentence_score(ours, [theirs]).score for ours, theirs in zip(hypotheses, references, strict=True)]


def differing(systems: Sequence[System]) -> list[str]:
    """The knobs whose values differ between the systems, in the order of params.yaml."""
    names = dict.fromkeys(name for system in systems for name in system.params)
    return [name for name in names if len({repr(system.params.get(name)) for system in systems}) > 1]


def changed_most(
    one: System, other: System, sources: Sequence[str], references: Sequence[str], count: int
) -> list[dict]:
    """The `count` sentences whose chrF differs most between two systems, the largest difference first."""
    score = CHRF().sentence_score
    rows = []
    for number, (source, reference, before, after) in enumerate(
        zip(sources, references, one.hypotheses, other.hypotheses, strict=True), start=1
    ):
        if before != after:
            change = score(after, [reference]).score - score(before, [reference]).score
            rows.append({"line": number, "change": round(change, 1), "source": source, "reference": reference,
                         "before": before, "after": after})  # fmt: skip
    return sorted(rows, key=lambda row: (-abs(row["change"]), row["line"]))[:count]
