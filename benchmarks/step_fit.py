"""The model of the time of an update, fitted: least squares of relative errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from statistics import median
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from benchmarks.flops import SIZES
from benchmarks.published import NVIDIA_VOCABULARY, TARGET_SHARE, Row
from benchmarks.step_time import Measured, Plan, Shape, Speed, update_seconds

NAMES = ("launch", "rate", "per_parameter", "bandwidth")
STARTS = 6  # where the search starts from: the longer of two times has a bend, where a search may stop
BYTES = {"fp16": 2, "mixed": 2, "float32": 4}  # of a gradient


class Errors(NamedTuple):
    """Sizes of relative errors, predicted / measured - 1."""

    median: float
    worst: float


def error(speed: Speed, run: Measured) -> float:
    """Predicted / measured seconds - 1."""
    return update_seconds(run.shape, speed, run.plan) / run.seconds - 1


def guess(runs: Sequence[Measured]) -> dict[str, float]:
    """A first guess of what is fitted, from the largest and the smallest run."""
    largest = max(runs, key=lambda run: sum(run.plan.parts) * run.shape.flop_per_token)
    smallest = min(runs, key=lambda run: run.seconds)
    nbytes = smallest.shape.parameters * smallest.plan.gradient_bytes
    return {
        "launch": smallest.seconds / smallest.shape.layers / 2,
        "rate": 1.2 * sum(largest.plan.parts) * largest.shape.flop_per_token / largest.seconds,
        "per_parameter": smallest.seconds / smallest.shape.parameters / 4,
        "bandwidth": 10 * nbytes / smallest.seconds,
    }


def fit(
    runs: Sequence[Measured], known: Mapping[str, float] | None = None, waits: bool = False, near: Speed | None = None
) -> Speed:
    """The speed with the least squares of relative errors over `runs`.

    known: values that are not fitted, by name. waits: see Speed. near: where to search, in fewer tries; default: around
    a guess. A value that no run depends on keeps about its first guess.
    """
    known = dict(known or {})
    start = {**(asdict(near) if near else guess(runs)), **known}
    start.pop("waits", None)
    free = [name for name in NAMES if name not in known]

    def speed_of(logarithms: np.ndarray) -> Speed:
        return Speed(**{**start, **dict(zip(free, np.exp(logarithms).tolist(), strict=True))}, waits=waits)

    def residuals(logarithms: np.ndarray) -> list[float]:
        return [error(speed_of(logarithms), run) for run in runs]

    chance = np.random.default_rng(0)
    middle = np.log([start[name] for name in free])
    bounds = middle - 12, middle + 12  # a factor of 160,000 either way
    others = chance.normal(0, 1, (1 if near else STARTS - 1, len(free))).clip(-3, 3)
    places = [middle, *(middle + 0.1 * other if near else middle + other for other in others)]
    found = [least_squares(residuals, place, bounds=bounds) for place in places]
    return speed_of(min(found, key=lambda one: one.cost).x)


def sizes_of(errors: Sequence[float]) -> Errors:
    """The median and the worst of some errors, without their signs."""
    sizes = [abs(one) for one in errors]
    return Errors(median(sizes), max(sizes))


def left_out_errors(
    runs: Sequence[Measured], known: Mapping[str, float] | None = None, waits: bool = False
) -> list[float]:
    """The error of each run, predicted by a fit to all others."""
    whole = fit(runs, known, waits)
    others = [[*runs[:number], *runs[number + 1 :]] for number in range(len(runs))]
    return [error(fit(rest, known, waits, whole), run) for rest, run in zip(others, runs, strict=True)]


def measured(row: Row) -> Measured:
    """A published row as a timed update. Its seconds follow from its tokens and its words per second."""
    shape = Shape.of(replace(SIZES["big"], layers=row.layers), NVIDIA_VOCABULARY)
    tokens = TARGET_SHARE * row.batch_tokens
    plan = Plan(row.gpus, (tokens,), BYTES[row.precision])
    return Measured(str(row), shape, plan, row.gpus * tokens / row.words_per_second)
