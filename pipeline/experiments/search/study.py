"""The trials of a search in Optuna's database, and the proposal of the next ones."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial
from sqlalchemy import create_engine, inspect
from sqlalchemy.exc import SQLAlchemyError

from pipeline.experiments.search.space import Dimension
from transformer.credentials import mask_credentials

ATTEMPTS = 20  # proposals of knobs that no trial has yet; then a trial may repeat one
GENERATION = "generation"  # attribute of a trial: the number of the first trial that was proposed with it


def sampler(name: str, seed: int, startup: int) -> BaseSampler:
    """One of Optuna's samplers. startup: after how many trials it learns from them; those before are random."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if name == "tpe":
            return TPESampler(seed=seed, n_startup_trials=startup)
        if name == "gp":
            return GPSampler(seed=seed, n_startup_trials=startup, deterministic_objective=True)
        return RandomSampler(seed=seed)


def open_database(url: str, name: str) -> optuna.Study:
    """The study of a search, made if it is new. Raises ValueError for a database of MLflow or one that is not there."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        tables = inspect(create_engine(url)).get_table_names()
        if {"experiments", "runs"} <= set(tables):  # both keep the version of their tables in alembic_version
            raise ValueError(f"{mask_credentials(url)} is a database of MLflow. Give the search one of its own.")
        return optuna.create_study(storage=url, study_name=name, direction="maximize", load_if_exists=True)
    except (SQLAlchemyError, ImportError) as error:
        reason = mask_credentials(str(error).split("\n")[0])
        raise ValueError(f"--storage {mask_credentials(url)}: {reason}") from None


class Trials:
    """The trials of a search, in Optuna's database. A trial has its score at each rung that it has reached.

    seed: of the proposals. name: of the sampler. size: how many trials are proposed at once, a generation.
    """

    def __init__(self, study: optuna.Study, space: Sequence[Dimension], seed: int, name: str, size: int) -> None:
        self.study, self.space, self.seed, self.name, self.generation_size = study, list(space), seed, name, size

    def all(self) -> list[FrozenTrial]:
        """All trials, in the order of their numbers."""
        return sorted(self.study.get_trials(deepcopy=False), key=lambda trial: trial.number)

    def propose(self, first: int) -> None:
        """Add a trial to the generation that begins with trial `first`.

        Its knobs are a function of the seed, of its number and of the trials before it. They are others than those of
        the trials before, unless ATTEMPTS proposals have given none.
        """
        before = self.all()
        distributions = {one.knob: one.distribution() for one in self.space}
        knobs: dict[str, Any] = {}
        for attempt in range(ATTEMPTS):
            chosen = sampler(self.name, seed_of(self.seed, len(before), attempt), self.generation_size)
            found = proposal(before, distributions, chosen)
            knobs = {one.knob: one.rounded(found[one.knob]) for one in self.space}
            if all(trial.params != knobs for trial in before):
                break
        attributes = {GENERATION: first}
        # In one transaction: a killed search leaves a whole trial or none.
        self.study.add_trial(
            create_trial(state=TrialState.RUNNING, params=knobs, distributions=distributions, user_attrs=attributes)
        )

    def generation(self, first: int) -> list[FrozenTrial]:
        """The trials that were proposed together with trial `first`."""
        return [trial for trial in self.all() if trial.user_attrs.get(GENERATION) == first]

    def report(self, number: int, updates: int, score: float) -> None:
        """Write the score of a trial at the rung of `updates` updates."""
        Trial(self.study, self.all()[number]._trial_id).report(score, updates)

    def end(self, number: int, score: float | None) -> None:
        """End a trial: with the score of the whole training; None if it was pruned."""
        if not self.all()[number].state.is_finished():
            state = TrialState.PRUNED if score is None else TrialState.COMPLETE
            self.study.tell(number, score, state=state)


def proposal(before: Iterable[FrozenTrial], distributions: dict[str, Any], chosen: BaseSampler) -> dict[str, Any]:
    """The knobs that a new sampler proposes after these trials."""
    memory = optuna.create_study(direction="maximize", sampler=chosen)
    memory.add_trials(before)
    return memory.ask(distributions).params


def seed_of(seed: int, number: int, attempt: int = 0) -> int:
    """The seed of the sampler that proposes trial `number` of a search, at an attempt from 0."""
    text = f"{seed} {number} {attempt}" if attempt else f"{seed} {number}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])


def sqlite(folder: Path) -> str:
    """The address of the database in the folder of a search."""
    return f"sqlite:///{folder.absolute() / 'trials.db'}"
