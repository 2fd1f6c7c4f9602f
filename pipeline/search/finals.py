"""The end of a search: the best trials and params.yaml itself, over several seeds, compared on valid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import mean
from typing import Any

from pipeline.search.space import Knobs
from pipeline.search.trainings import Trainings
from pipeline.workflow.dvc_lock import Result
from transformer.evaluation.comparison import correct, means_over_seeds
from transformer.files import Untrainable

SIGNIFICANT = 0.05  # a difference with a smaller p-value is called one
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
    """A row per configuration: its knobs, mean and deviation of valid_bleu, and Welch's p against params.yaml as it is.

    groups: name -> its experiments, one for each seed; params.yaml first. Without params.yaml, because it diverged,
    there are no differences. test_bleu_mean is None for all but the winner.
    """
    systems = {name: [experiment.system(translations=False) for experiment in group] for name, group in groups.items()}
    first = next(iter(systems))
    start = systems[first] if first.endswith(START) else []
    rows: list[dict[str, Any]] = []
    for name, group in systems.items():
        own = means_over_seeds(group, "valid_bleu")[0]
        row = {"name": name, **{knob: group[0].params[knob] for knob in knobs}, "delta": None}
        row |= {score: own[score] for score in ("valid_bleu_mean", "valid_bleu_deviation")}
        if start and name != first:
            row["delta"] = round(row["valid_bleu_mean"] - rows[0]["valid_bleu_mean"], 2)
            row["p_seeds"] = means_over_seeds([*start, *group], "valid_bleu")[-1].get("p_seeds")
        rows.append(row | {"test_bleu_mean": None})
    correct(rows, "p_seeds")
    winner = best_of(rows)
    winner["test_bleu_mean"] = round(mean(system.scores["bleu"] for system in systems[winner["name"]]), 2)
    return rows


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
        lines.append("One seed cannot show whether it is better than params.yaml. Use more (--seeds).")
    elif p < SIGNIFICANT:
        lines.append(f"The seeds show that it is better than params.yaml (p = {p}).")
    else:
        lines.append(f"The seeds do not show that it is better than params.yaml (p = {p}): give more (--seeds).")
    return [*lines, f"Take it over:  dvc exp apply {winner['name']}"]
