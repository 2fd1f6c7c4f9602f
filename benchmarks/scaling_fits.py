"""The fits behind docs/scaling.md, to published rows, to processes of a CPU and to this project on a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from benchmarks import published
from benchmarks.flops import SIZES, Size
from benchmarks.predictions import NETWORKS
from benchmarks.published import TARGET_SHARE
from benchmarks.step_fit import Errors, error, fit, left_out_errors, measured, sizes_of
from benchmarks.step_time import Input, Measured, Plan, Shape, Speed, update_seconds

GPU_VOCABULARY = 32_000  # of benchmarks/gpu_parts.py


@dataclass(frozen=True)
class Fit:
    """A fit: what it was fitted to, what it found, and its errors."""

    name: str
    runs: Sequence[Measured]
    speed: Speed
    fitted: tuple[str, ...]  # names of the values that were fitted
    left_out: Sequence[float] = ()  # errors of each run, predicted from the others

    @property
    def errors(self) -> Errors:
        """Over the runs of the fit itself."""
        return sizes_of([error(self.speed, run) for run in self.runs])


def made(name: str, runs: Sequence[Measured], known: Mapping[str, float], waits: bool = False) -> Fit:
    """A fit; with errors of runs left out, if there are twice as many runs as fitted values."""
    names = tuple(field for field in ("launch", "rate", "per_parameter", "bandwidth") if field not in known)
    left_out = left_out_errors(runs, known, waits) if len(runs) >= 2 * len(names) else ()
    return Fit(name, runs, fit(runs, known, waits), names, left_out)


@cache
def published_fits() -> dict[str, Fit]:
    """The fits to published rows, by a short name.

    Some rows cannot tell all values apart. NVIDIA's have two batch sizes, both too large for launches to matter; those
    in float32 have one. LightSeq's A100 are always eight.
    """
    v100 = made("fairseq, V100, fp16", [measured(row) for row in published.FAIRSEQ_V100], {})
    a100 = made(
        "fairseq, A100, fp16", [measured(row) for row in published.FAIRSEQ_A100], {"bandwidth": v100.speed.bandwidth}
    )
    mixed = made("NVIDIA's fairseq, V100, mixed", [measured(row) for row in published.NVIDIA_MIXED], {"launch": 0.0})
    float32 = made(
        "NVIDIA's fairseq, V100, float32",
        [measured(row) for row in published.NVIDIA_FLOAT32],
        {"launch": v100.speed.launch, "per_parameter": mixed.speed.per_parameter},
    )
    return {"v100": v100, "a100": a100, "mixed": mixed, "float32": float32}


@dataclass(frozen=True)
class Check:
    """A figure that no fit has seen, in seconds of an update."""

    what: str
    sources: tuple[str, ...]
    predicted: float
    published: float
    between: bool = False  # between machines

    @property
    def error(self) -> float:
        """Predicted / published - 1."""
        return self.predicted / self.published - 1


def checks() -> list[Check]:
    """The figures that were held out, beside their predictions."""
    fits = published_fits()
    found = []
    for row, fitted in zip(published.HELD_OUT, (fits["mixed"], fits["float32"]), strict=True):
        run = measured(row)
        found.append(
            Check(
                f"{row.gpus} {row.gpu} of one machine, big, {row.precision}",
                ("nvidia",),
                update_seconds(run.shape, fitted.speed, run.plan),
                run.seconds,
            )
        )
    return [*found, *log_checks(fits["v100"].speed), *paper_checks(fits["float32"].speed)]


def log_checks(speed: Speed) -> list[Check]:
    """The training of M. Ott on 16 machines, for each network; its log does not say which one it had."""
    log = published.OTT_LOG
    shape = Shape.of(SIZES["big"], published.NVIDIA_VOCABULARY)
    plans = {name: Plan(log.gpus, (TARGET_SHARE * log.batch_tokens,), 2, network) for name, network in NETWORKS.items()}
    return [
        Check(
            f"{log.gpus} V100 of 16 machines, big, fp16, at {name}",
            (log.source, "issue-361"),
            update_seconds(shape, speed, planned),
            log.seconds / log.updates,
            True,
        )
        for name, planned in plans.items()
    ]


def paper_checks(speed: Speed) -> list[Check]:
    """The steps of Vaswani et al. on 8 P100: the float32 fit, with the rate in proportion to the peak rates."""
    peaks = published.PEAK_FLOAT32
    on_p100 = replace(speed, rate=speed.rate * peaks["P100"] / peaks["V100"])
    planned = Plan(published.VASWANI_GPUS, (published.VASWANI_TOKENS / published.VASWANI_GPUS,), 4)
    return [
        Check(
            f"8 P100, {step.size}, float32",
            ("vaswani", "gpus"),
            update_seconds(Shape.of(SIZES[step.size], published.VOCABULARY), on_p100, planned),
            step.seconds,
        )
        for step in published.VASWANI
    ]


def least_checks() -> list[tuple[str, float, int]]:
    """Speeds given as lower bounds: what, predicted and published words per second."""
    fits = published_fits()
    shape = Shape.of(SIZES["base"], published.OTT_BASE_VOCABULARY)
    found = []
    for least in published.OTT_BASE:
        fitted, nbytes = (fits["v100"], 2) if least.precision == "fp16" else (fits["float32"], 4)
        tokens = TARGET_SHARE * published.OTT_BASE_TOKENS
        seconds = update_seconds(shape, fitted.speed, Plan(published.OTT_BASE_GPUS, (tokens,), nbytes))
        found.append(
            (f"4 V100, base, {least.precision}", published.OTT_BASE_GPUS * tokens / seconds, least.words_per_second)
        )
    return found


def cpu_runs(rows: Sequence[dict], cores: int) -> list[Measured]:
    """The rows of step_measure.measure as timed updates."""
    runs = []
    for row in rows:
        shape = Shape.of(Size(**row["size"]), row["vocabulary"])
        planned = Plan(row["processes"], (float(row["tokens"]),), 4, None, cores)
        runs.append(Measured(f"{row['processes']}", shape, planned, row["seconds"]))
    return runs


def input_of(rows: Sequence[dict]) -> Input:
    """The costs of making batches, from rows of step_measure.input_costs: the list from the slowest row, dealing from
    the row with most devices, since it matters there alone."""
    most = max(rows, key=lambda row: row["devices"])
    return Input(
        max(row["list_seconds"] / row["target_tokens"] for row in rows),
        most["deal_seconds"] / (most["parts"] * most["devices"]),
    )


def own_fits(results: Mapping[str, dict], bandwidth: float) -> list[Fit]:
    """The fits to this project's own speed on a GPU, from docs/gpu.json: one for each program and precision.

    A row's update has batch_tokens without its padding as target tokens. The exchange is not measured there, so its
    bandwidth is given. Without rows of both sizes and both batches there is no fit.
    """
    groups: dict[str, list[Measured]] = {}
    for part, outcome in results.items():
        if not part.startswith("speed-"):
            continue
        _, size, thousands = part.split("-")
        for row in outcome.get("rows", []):
            if row["program"] in ("ours", "compiled"):
                tokens = 1000 * int(thousands[:-1]) * (1 - row["padding_share"])
                run = Measured(
                    f"{size}, {thousands[:-1]},000",
                    Shape.of(SIZES[size], GPU_VOCABULARY),
                    Plan(1, (tokens,), 4),
                    tokens / row["tokens_per_second"],
                )
                name = f"{row['program']}, {row['precision']}, {outcome['machine']['device']}"
                groups.setdefault(name, []).append(run)
    return [made(name, runs, {"bandwidth": bandwidth}) for name, runs in groups.items() if len(runs) >= 4]
