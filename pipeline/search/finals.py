"""The end of a search: the best trials and params.yaml itself, over several seeds, compared on valid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from statistics import mean
from typing import Any

from pipeline.search.space import Knobs
from pipeline.search.study import Untrainable
from pipeline.search.trainings import Trainings
from pipeline.tracking.champion import SIGNIFICANT
from pipeline.workflow.dvc_lock import Result
from transformer.evaluation.comparison import System, compare_with_first, correct, means_over_seeds

START = "-start"  # the end of the name of params.yaml as it is
DIVERGED = "params.yaml as it is diverged with one of the seeds, so nothing is compared with it."


def finals(trainings: Trainings, best: Sequence[Knobs], seeds: int, jobs: int) -> list[dict]:
    """Train params.yaml as it is and the best knobs with `seeds` seeds, and compare them on valid. Returns `table`.

    The seed of params.yaml is not used here, because the best trials were selected with it. Configurations with a
    failed training have no row.
    """
    changes: dict[str, Knobs] = {f"{trainings.folder.name}{START}": {}}
    changes |= {trainings.experiment(knobs): {**knobs, "best_by": "bleu"} for knobs in best}

    def train(pair: tuple[str, int]) -> Result | None:
        name, seed = f"{pair[0]}-seed{pair[1]}", pair[1]
        try:
            return trainings.experiment_with(name, {**changes[pair[0]], "seed": seed})
        except Untrainable as reason:
            print(f"{name}  {reason}", flush=True)
            return None

    first = trainings.params.seed + 1
    pairs = [(name, seed) for name in changes for seed in range(first, first + seeds)]
    with ThreadPoolExecutor(jobs) as pool:
        results = dict(zip(pairs, pool.map(train, pairs), strict=True))
    groups = {name: [results[pair] for pair in pairs if pair[0] == name] for name in changes}
    complete = {name: [result for result in group if result] for name, group in groups.items() if all(group)}
    return table(complete, list(best[0])) if complete else []


def table(groups: Mapping[str, Sequence[Result]], knobs: Sequence[str]) -> list[dict]:
    """A row per configuration: its knobs, mean and deviation of valid_bleu, and p-values against params.yaml as it is.

    groups: name -> its experiments, one for each seed; params.yaml first. p_seeds is between the seeds; the other
    p-values are between the translations of valid by the first seed. test_bleu_mean is None for all but the winner.
    Without params.yaml, because it diverged, there are no differences and no p-values.
    """
    systems = {name: [score_on_valid(experiment) for experiment in group] for name, group in groups.items()}
    rows: list[dict[str, Any]] = []
    for name in groups:
        (own,) = means_over_seeds(systems[name], "valid_bleu")
        searched = {knob: systems[name][0].params[knob] for knob in knobs}
        scores = {score: own[score] for score in ("valid_bleu_mean", "valid_bleu_deviation")}
        rows.append({"name": name, **searched, **scores, "delta": None})
    start = rows[0]
    if start["name"].endswith(START):
        experiment = groups[start["name"]][0]
        references = experiment.lines(experiment.raw("tgt", "valid"))
        sentences = compare_with_first([group[0] for group in systems.values()], references)
        for row, tests in zip(rows[1:], sentences[1:], strict=True):
            row["delta"] = round(row["valid_bleu_mean"] - start["valid_bleu_mean"], 2)
            pair = means_over_seeds([*systems[start["name"]], *systems[row["name"]]], "valid_bleu")
            row["p_seeds"] = pair[-1].get("p_seeds")
            row |= {test: p for test, p in tests.items() if test.startswith("p_")}
        correct(rows, "p_seeds")
    winner = best_of(rows)
    for row in rows:
        on_test = [experiment.scores()["bleu"] for experiment in groups[row["name"]]]
        row["test_bleu_mean"] = round(mean(on_test), 2) if row is winner else None
    return rows


def score_on_valid(experiment: Result) -> System:
    """The scores of an experiment with its translations of valid."""
    return replace(experiment.system(translations=False), hypotheses=experiment.lines(experiment.hypotheses("valid")))


def best_of(rows: Sequence[dict]) -> dict:
    """The row of the finals with the highest mean on valid."""
    return max(rows, key=lambda row: row["valid_bleu_mean"])


def conclusion(rows: Sequence[dict]) -> list[str]:
    """What the finals show, in lines for a person: the winner, how sure it is, and how to take it over."""
    winner = best_of(rows)
    lines = [f"best on valid: {winner['name']}; its BLEU on test is {winner['test_bleu_mean']}"]
    if winner["name"].endswith(START):
        return [*lines, "No trial is better than params.yaml. Keep params.yaml as it is, or search other ranges."]
    p = winner.get("p_seeds_holm", winner.get("p_seeds"))
    if not rows[0]["name"].endswith(START):
        lines.append(DIVERGED)
    elif p is None:
        lines.append("Nothing shows yet that it is better than params.yaml: give more seeds (--seeds).")
    elif p < SIGNIFICANT:
        lines.append(f"The seeds show that it is better than params.yaml (p = {p}).")
    else:
        lines.append(f"The seeds do not show that it is better than params.yaml (p = {p}): give more (--seeds).")
    return [*lines, f"Take it over:  dvc exp apply {winner['name']}"]
