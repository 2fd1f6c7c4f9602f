"""The search itself: Optuna proposes trials, keeps them and stops those that are behind the others after a rung.

A rung is a number of updates after which trials are compared. Optuna's pruner is asynchronous successive halving (Li
et al. 2020): of the trials that have come to a rung so far, the best third goes on.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.pruners import SuccessiveHalvingPruner
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from pipeline.search.space import Knobs, Space
from transformer.files import sha256_text

FACTOR = 3  # one of 3 trials goes on to the next rung, which has about 3 times as many updates
RUNGS = 3
DIGITS = 4  # significant digits of a proposed number

Scores = Callable[
    [Knobs, Sequence[int]], Generator[float, None, None]
]  # (knobs, rungs) -> the score at each rung, 0 for a failure


def rungs_of(max_steps: int, save_every: int, first: int | None = None) -> list[int]:
    """Up to RUNGS rungs: `first` (default: about a ninth of max_steps), three times as many updates, and max_steps.

    Raises ValueError if `first` is no multiple of save_every up to max_steps.
    """
    first = first or max(1, round(max_steps / FACTOR ** (RUNGS - 1) / save_every)) * save_every
    if first % save_every or first > max_steps:
        raise ValueError(
            f"--first-rung {first} must be a multiple of save_every={save_every}, at most max_steps={max_steps}."
        )
    between = [first * FACTOR**place for place in range(1, RUNGS - 1)]
    return sorted({first, *(rung for rung in between if 2 * rung <= max_steps), max_steps})


class SeededSampler(BaseSampler):
    """Proposes knobs as a function of the seed, the number of the trial and the trials before it.

    Optuna's samplers continue one random sequence, which begins anew when a search is started again. kind: tpe, random.
    """

    def __init__(self, kind: str, seed: int) -> None:
        self.kind, self.seed = kind, seed

    def sampler(self, trial: FrozenTrial, knob: str = "") -> BaseSampler:
        """Optuna's sampler for a trial: for all knobs jointly, or for one knob that is sampled independently."""
        seed = int(sha256_text(f"{self.seed} {trial.number} {knob}")[:8], 16)
        with warnings.catch_warnings(action="ignore"):  # some of its options are called experimental
            if self.kind == "random":
                return RandomSampler(seed)
            return TPESampler(seed=seed, multivariate=True, constant_liar=True)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self.sampler(trial).infer_relative_search_space(study, trial)

    def sample_relative(self, study: optuna.Study, trial: FrozenTrial, search_space: dict) -> dict[str, Any]:
        values = self.sampler(trial).sample_relative(study, trial, search_space)
        return {knob: rounded(value, search_space[knob]) for knob, value in values.items()}

    def sample_independent(self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution) -> Any:
        sampler = self.sampler(trial, param_name)
        return rounded(sampler.sample_independent(study, trial, param_name, param_distribution), param_distribution)


def rounded(value: Any, values: BaseDistribution) -> Any:
    """A number with DIGITS significant digits that is still one of `values`; a value of another kind as it is."""
    if not isinstance(values, FloatDistribution):
        return value
    return min(max(float(f"{value:.{DIGITS}g}"), values.low), values.high)


def open_study(folder: Path) -> optuna.Study:
    """The trials of a search that have ended, in Optuna's database in the folder of the search."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    url = f"sqlite:///{folder.absolute() / 'trials.db'}"
    return optuna.create_study(storage=url, study_name=folder.name, direction="maximize", load_if_exists=True)


def search(
    study: optuna.Study,
    space: Space,
    rungs: Sequence[int],
    measure: Scores,
    count: int,
    sampler: BaseSampler,
    jobs: int = 1,
) -> None:
    """Add trials to a study until it has `count`. jobs: how many train at once.

    A trial is written to the study as a whole when it has ended. With one job, the trial in which a search was killed
    is therefore proposed and compared again as it was. Knobs that were tried are not trained again.
    """
    pruner = SuccessiveHalvingPruner(min_resource=rungs[0], reduction_factor=FACTOR)
    running = optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)
    running.add_trials(study.get_trials())

    def run_trial(_: int) -> None:
        trial = running.ask(dict(space))
        before = [earlier for earlier in running.get_trials() if earlier.state.is_finished()]
        known = [earlier.intermediate_values for earlier in before if earlier.params == trial.params]
        scores = (score for score in known[0].values()) if known else measure(trial.params, rungs)
        updates, score = 0, 0.0
        with closing(scores):  # ends the work on a trial that is stopped
            for updates, score in zip(rungs, scores, strict=False):
                trial.report(score, updates)
                if not score or (updates < rungs[-1] and trial.should_prune()):
                    break
        complete = score > 0 and updates == rungs[-1]
        state = TrialState.COMPLETE if complete else TrialState.PRUNED
        study.add_trial(running.tell(trial, score if complete else None, state))

    run_at_once(run_trial, range(len(running.trials), count), jobs)


def run_at_once(work: Callable[[Any], Any], items: Iterable[Any], jobs: int) -> list[Any]:
    """The results of `work` for each item, in order; `jobs` items at a time. After an error no item begins."""
    failed = Event()

    def begin(item: Any) -> Any:
        try:
            return None if failed.is_set() else work(item)
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(begin, items))


def best(study: optuna.Study, count: int) -> Sequence[Knobs]:
    """The distinct knobs of the best completed trials, best first. A tie goes to the earlier trial."""
    complete = study.get_trials(states=[TrialState.COMPLETE])
    ranked = sorted(complete, key=lambda trial: (-trial.values[0], trial.number))
    return list({str(trial.params): trial.params for trial in ranked}.values())[:count]
