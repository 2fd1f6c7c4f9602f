"""The search itself: Optuna proposes trials, keeps them and stops those that are behind the others after a rung.

A rung is a number of updates after which trials are compared. Optuna's pruner is asynchronous successive halving (Li
et al. 2020): of the trials that have come to a rung so far, the best third goes on.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.pruners import SuccessiveHalvingPruner
from optuna.samplers import TPESampler
from optuna.trial import TrialState

from pipeline.search.space import Knobs, Space
from transformer.files import Mistake, Untrainable

FACTOR = 3  # one of 3 trials goes on to the next rung, which has about 3 times as many updates
RUNGS = 3
DIGITS = 4  # significant digits of the numbers that are trained with

Scores = Callable[[Knobs, Sequence[int]], Generator[float, None, None]]  # (knobs, rungs) -> the score at each rung


def rungs_of(max_steps: int, save_every: int, first: int | None = None) -> list[int]:
    """Up to RUNGS rungs: `first` (default: about a ninth of max_steps), three times as many updates, and max_steps.

    Raises Mistake if `first` is no multiple of save_every up to max_steps.
    """
    first = first or max(1, round(max_steps / FACTOR ** (RUNGS - 1) / save_every)) * save_every
    if first % save_every or first > max_steps:
        raise Mistake(
            f"--first-rung {first} must be a multiple of save_every={save_every}, at most max_steps={max_steps}."
        )
    between = [first * FACTOR**number for number in range(1, RUNGS - 1)]
    return sorted({first, *(rung for rung in between if 2 * rung <= max_steps), max_steps})


def open_study(folder: Path, seed: int, rungs: Sequence[int]) -> optuna.Study:
    """The trials of a search, in Optuna's database in its folder.

    A trial in which the search was killed is tried again first: its training resumes.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        storage=f"sqlite:///{folder.absolute() / 'trials.db'}",
        study_name=folder.name,
        direction="maximize",
        load_if_exists=True,
        pruner=SuccessiveHalvingPruner(min_resource=rungs[0], reduction_factor=FACTOR),
    )
    seed += len(study.trials)  # so that a search that goes on does not propose the same trials again
    with warnings.catch_warnings(action="ignore"):  # some of its options are called experimental
        study.sampler = TPESampler(seed=seed, multivariate=True, constant_liar=True)
    for trial in study.get_trials(states=[TrialState.RUNNING]):
        study.tell(trial.number, state=TrialState.FAIL)
        study.enqueue_trial(trial.params)
    return study


def search(study: optuna.Study, space: Space, rungs: Sequence[int], scores: Scores, count: int, jobs: int = 1) -> None:
    """Add trials to a study until `count` have ended. jobs: how many train at once.

    A trial that ends by another error than Untrainable does not count, and is tried first when the search goes on.
    """

    def run_trial(trial: optuna.Trial) -> float:
        knobs = {knob: round_value(suggest(trial, knob, values)) for knob, values in space.items()}
        score = 0.0
        try:
            with closing(scores(knobs, rungs)) as measured:  # closing ends the work on a trial that is stopped
                for updates, score in zip(rungs, measured, strict=True):
                    trial.report(score, updates)
                    if updates < rungs[-1] and trial.should_prune():
                        raise optuna.TrialPruned
        except Untrainable:
            raise optuna.TrialPruned from None
        except optuna.TrialPruned:
            raise
        except Exception:
            study.enqueue_trial(trial.params)
            raise
        return score

    ended = study.get_trials(states=[TrialState.COMPLETE, TrialState.PRUNED])
    if len(ended) < count:
        study.optimize(run_trial, n_trials=count - len(ended), n_jobs=jobs)


def suggest(trial: optuna.Trial, knob: str, values: BaseDistribution) -> Any:
    """The value of a knob that Optuna proposes for a trial."""
    if isinstance(values, FloatDistribution):
        return trial.suggest_float(knob, values.low, values.high, log=values.log)
    if isinstance(values, IntDistribution):
        return trial.suggest_int(knob, values.low, values.high, log=values.log)
    assert isinstance(values, CategoricalDistribution)
    return trial.suggest_categorical(knob, values.choices)


def round_value(value: Any) -> Any:
    """A number with DIGITS significant digits; a value of another kind as it is."""
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def best_knobs(study: optuna.Study, count: int) -> Sequence[Knobs]:
    """The distinct knobs of the best completed trials, best first. A tie goes to the earlier trial."""
    complete = study.get_trials(states=[TrialState.COMPLETE])
    ranked = sorted(complete, key=lambda trial: (-trial.values[0], trial.number))
    knobs = ({knob: round_value(value) for knob, value in trial.params.items()} for trial in ranked)
    return list({str(each): each for each in knobs}.values())[:count]
