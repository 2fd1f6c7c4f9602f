"""Successive halving (Jamieson and Talwalkar 2016): many trials train a little, the best of them go on.

Trials are proposed in generations. All trials of a generation train to the first rung; the best third of them goes on
to the next rung, and so on. Which trials go on is decided when all have reached a rung, so it does not depend on how
many train at once, nor on when the search was killed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from optuna.trial import FrozenTrial

from pipeline.experiments.search.at_once import at_once
from pipeline.experiments.search.plan import FACTOR
from pipeline.experiments.search.study import Trials

Score = Callable[[int, dict[str, Any], int], float]  # (number of the trial, its knobs, updates) -> score


def search(trials: Trials, count: int, rungs: Sequence[int], score: Score, jobs: int = 1) -> None:
    """Propose `count` trials and train them as far as successive halving lets them. What is done is not done again.

    rungs: in updates. score: trains a trial up to a rung and returns its score, higher is better. jobs: how many trials
    train at once.
    """
    first = 0
    while first < count:
        generation = proposed(trials, first, min(trials.generation_size, count - first))
        if not all(trial.state.is_finished() for trial in generation):
            halve(trials, [trial.number for trial in generation], rungs, score, jobs)
        first += len(generation)


def proposed(trials: Trials, first: int, size: int) -> list[FrozenTrial]:
    """The trials of the generation that begins with trial `first`. Proposes those that it lacks to have `size`.

    A generation of which a trial has ended gets no more trials.
    """
    found = trials.generation(first)
    if not any(trial.state.is_finished() for trial in found):
        for _ in range(size - len(found)):
            trials.propose(first)
    return trials.generation(first)


def halve(trials: Trials, numbers: Sequence[int], rungs: Sequence[int], score: Score, jobs: int) -> None:
    """Train the trials of a generation and end them all."""
    left = list(numbers)
    for updates in rungs:
        at_once(lambda number, updates=updates: train(trials, number, updates, score), left, jobs)
        if updates != rungs[-1]:
            left = ranked(trials, left, updates)[: max(1, len(left) // FACTOR)]
    scores = {number: trials.all()[number].intermediate_values[rungs[-1]] for number in left}
    for number in numbers:
        trials.end(number, scores.get(number))


def train(trials: Trials, number: int, updates: int, score: Score) -> None:
    """Train a trial up to a rung, unless its score there is known: its own, or that of one with the same knobs."""
    every = trials.all()
    trial = every[number]
    if updates not in trial.intermediate_values:
        known = [
            one.intermediate_values[updates]
            for one in every
            if one.params == trial.params and updates in one.intermediate_values
        ]
        trials.report(number, updates, known[0] if known else score(number, trial.params, updates))


def ranked(trials: Trials, numbers: Sequence[int], updates: int) -> list[int]:
    """Trials by their score at a rung, the best first; of equal ones the earlier first."""
    scores = {number: trials.all()[number].intermediate_values[updates] for number in numbers}
    return sorted(numbers, key=lambda number: (-scores[number], number))


def best(trials: Trials, count: int) -> list[FrozenTrial]:
    """The best trials that were trained to the end, the best first; none of those that failed, whose score is 0.

    Of trials with the same knobs, the first one, whose experiment there is.
    """
    ended = [trial for trial in trials.all() if trial.value and trial.state.name == "COMPLETE"]
    different = [trial for place, trial in enumerate(ended) if all(trial.params != one.params for one in ended[:place])]
    return sorted(different, key=lambda trial: (-(trial.value or 0), trial.number))[:count]
