"""The end of a search: the best trials and params.yaml itself, over several seeds, compared on valid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import TYPE_CHECKING, Any

from pipeline.experiments.revisions import Experiment
from pipeline.experiments.search.at_once import at_once
from pipeline.experiments.search.plan import START
from pipeline.experiments.search.space import Value
from pipeline.experiments.search.trainings import Trainings, Untrainable
from transformer.evaluation.comparison import System, against_the_first, correct, over_seeds

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


@dataclass(frozen=True)
class Entrant:
    """A configuration in the finals.

    name: of its experiment with the seed of params.yaml. knobs: those that were searched. values: what its experiments
    change in params.yaml. is_start: whether it is params.yaml as it is.
    """

    name: str
    knobs: Mapping[str, Value]
    values: Mapping[str, Value]
    is_start: bool = False


def entrants(trainings: Trainings, best: Sequence[FrozenTrial], searched: Sequence[str]) -> list[Entrant]:
    """What the finals compare: params.yaml as it is, then the best trials. searched: names of the searched knobs."""
    start = {name: getattr(trainings.params, name) for name in searched}
    found = [Entrant(f"{trainings.name}-{START}", start, {}, is_start=True)]
    return found + [
        Entrant(trainings.experiment(trial.number), trial.params, {**trial.params, "best_by": "bleu"}) for trial in best
    ]


def finals(trainings: Trainings, everyone: Sequence[Entrant], seeds: int, jobs: int) -> list[dict]:
    """Train each entrant with `seeds` seeds, and compare them on valid. Returns a row per entrant, the first one first.

    The seeds are others than that of params.yaml. By that one the best trials were chosen, so it would favour them. An
    entrant that diverges with one of the seeds has no row.
    """
    first = trainings.params.seed + 1
    pairs = [(entrant, seed) for entrant in everyone for seed in range(first, first + seeds)]
    found = at_once(lambda pair: trained(trainings, *pair), pairs, jobs)
    groups = {
        entrant.name: [one for one, (other, _) in zip(found, pairs, strict=True) if other is entrant]
        for entrant in everyone
    }
    whole = {name: [one for one in group if one is not None] for name, group in groups.items() if None not in group}
    return table([entrant for entrant in everyone if entrant.name in whole], whole) if whole else []


def trained(trainings: Trainings, entrant: Entrant, seed: int) -> Experiment | None:
    """The experiment of an entrant with a seed; None if its training diverges."""
    name = f"{entrant.name}-seed{seed}"
    try:
        return trainings.finished(name, {**entrant.values, "seed": seed})
    except Untrainable as reason:
        print(f"{name}: {reason}", flush=True)
        return None


def table(everyone: Sequence[Entrant], found: Mapping[str, Sequence[Experiment]]) -> list[dict]:
    """A row per entrant: its knobs, mean and deviation of valid_bleu, and p-values against params.yaml as it is.

    found: name of an entrant -> its experiments, one for each seed. p_seeds is between the seeds; the other p-values
    are between the translations of valid by the first seed. test_bleu_mean is None for all but the winner. Without
    params.yaml among the entrants, because it diverged, there are no differences and no p-values.
    """
    systems = {name: [on_valid(one) for one in group] for name, group in found.items()}
    rows: list[dict[str, Any]] = []
    for entrant in everyone:
        (own,) = over_seeds(systems[entrant.name], "valid_bleu")
        rows.append(
            {
                "name": entrant.name,
                **entrant.knobs,
                "valid_bleu_mean": own["valid_bleu_mean"],
                "valid_bleu_deviation": own["valid_bleu_deviation"],
                "delta": None,
            }
        )
    if everyone[0].is_start:
        for row, compared in zip(rows, comparisons(everyone, systems, found), strict=True):
            row |= compared
        correct(rows, "p_seeds")
    winner = max(rows, key=lambda row: row["valid_bleu_mean"])
    for row in rows:
        scores = [one.scores()["bleu"] for one in found[row["name"]]] if row is winner else []
        row["test_bleu_mean"] = round(mean(scores), 2) if scores else None
    return rows


def comparisons(
    everyone: Sequence[Entrant], systems: Mapping[str, Sequence[System]], found: Mapping[str, Sequence[Experiment]]
) -> list[dict[str, Any]]:
    """A row per entrant: delta of the means on valid and p-values, both against the first entrant; see `table`."""
    start = everyone[0].name
    experiment = found[start][0]
    references = experiment.lines(experiment.raw("tgt", "valid"))
    rows = []
    for entrant, by_sentence in zip(
        everyone, against_the_first([systems[entrant.name][0] for entrant in everyone], references), strict=True
    ):
        pair = over_seeds([*systems[start], *systems[entrant.name]], "valid_bleu")
        delta = round(pair[-1]["valid_bleu_mean"] - pair[0]["valid_bleu_mean"], 2) if entrant.name != start else None
        p_values = {name: p for name, p in by_sentence.items() if name.startswith("p_")}
        rows.append({"delta": delta, "p_seeds": pair[-1].get("p_seeds"), **p_values})
    return rows


def on_valid(experiment: Experiment) -> System:
    """The scores of an experiment with its translations of valid."""
    return replace(experiment.scored(), hypotheses=experiment.lines(experiment.hypotheses("valid")))
