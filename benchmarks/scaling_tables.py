"""The tables of docs/scaling.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks import published
from benchmarks.predictions import (
    NETWORKS,
    Gpu,
    Prediction,
    Recipe,
    fixed_batch,
    networks,
    plan,
    predict,
    rate_factor,
    stops_paying,
)
from benchmarks.published import SOURCES, TITLES
from benchmarks.scaling_fits import Check, Fit
from benchmarks.step_fit import error, sizes_of
from benchmarks.step_time import Input, Measured

WIDER = (1, 8, 64, 256)  # GPUs


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows])


def link(source: str) -> str:
    """A link to a source."""
    title = TITLES.get(source) or f"fairseq {source.replace('-', ' ')}"
    return f"[{title}]({SOURCES[source]})"


def percent(share: float) -> str:
    """A relative error with its sign."""
    return f"{100 * share:+.0f}%"


def hours(value: float) -> str:
    """Hours, with a decimal if they are few."""
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def milliseconds(seconds: float) -> str:
    """Seconds as milliseconds."""
    return f"{1000 * seconds:,.0f}"


def values(fitted: Fit) -> list[str]:
    """The values of a fit, in the units of the page; those that were given are in brackets."""
    speed = fitted.speed
    shown = {
        "launch": f"{1e3 * speed.launch:.3g} ms",
        "rate": f"{speed.rate / 1e12:.3g} TFLOP/s" if speed.rate > 1e12 else f"{speed.rate / 1e9:.3g} GFLOP/s",
        "per_parameter": f"{1e9 * speed.per_parameter:.3g} ns",
        "bandwidth": f"{speed.bandwidth / 1e9:.3g} GB/s",
    }
    return [text if name in fitted.fitted else f"({text})" for name, text in shown.items()]


def fits_table(fits: Iterable[Fit]) -> str:
    """The fitted values, and the errors of the fits."""
    head = (
        "fit",
        "rows",
        "launch, per layer",
        "rate",
        "per parameter",
        "in a machine",
        "error, median and worst",
        "a row left out, median and worst",
    )
    rows = []
    for one in fits:
        errors = [
            f"{100 * size:.0f}%, {100 * worst:.0f}%"
            for size, worst in [one.errors, *([sizes_of(one.left_out)] if one.left_out else [])]
        ]
        rows.append([one.name, str(len(one.runs)), *values(one), *errors, *[""] * (2 - len(errors))])
    return table(head, rows)


def checks_table(found: Iterable[Check]) -> str:
    """What was held out, beside the predictions."""
    head = ("held out", "published, ms an update", "predicted", "error", "source")
    return table(
        head,
        (
            [
                one.what,
                milliseconds(one.published),
                milliseconds(one.predicted),
                percent(one.error),
                ", ".join(map(link, one.sources)),
            ]
            for one in found
        ),
    )


def least_table(found: Iterable[tuple[str, float, int]]) -> str:
    """Published lower bounds beside the predictions."""
    return table(
        ("lower bound", "published, tokens/s at least", "predicted"),
        ([what, f"{least:,}", f"{predicted:,.0f}"] for what, predicted, least in found),
    )


def cpu_table(fitted: Fit, ahead: Fit) -> str:
    """Measured updates of this trainer on processes of one machine. ahead: fitted to 1 and 2 processes alone."""
    head = (
        "layers",
        "parameters",
        "tokens a process",
        "processes",
        "measured, ms",
        "fit",
        "left out",
        "from 1 and 2 processes",
    )
    return table(
        head,
        (cpu_row(run, fitted, left_out, ahead) for run, left_out in zip(fitted.runs, fitted.left_out, strict=True)),
    )


def cpu_row(run: Measured, fitted: Fit, left_out: float, ahead: Fit) -> list[str]:
    """A row of `cpu_table`."""
    before = percent(error(ahead.speed, run)) if run.plan.devices > 2 else ""
    return [
        str(run.shape.layers),
        f"{run.shape.parameters / 1e6:.1f} million",
        f"{run.plan.parts[0]:,.0f}",
        str(run.plan.devices),
        milliseconds(run.seconds),
        percent(error(fitted.speed, run)),
        percent(left_out),
        before,
    ]


def input_table(rows: Iterable[dict]) -> str:
    """What making batches costs."""
    head = (
        "devices",
        "batch_tokens",
        "device_tokens",
        "micro-batches",
        "busiest device / mean",
        "list, µs a token",
        "cut and deal, ms",
    )
    return table(
        head,
        (
            [
                str(row["devices"]),
                f"{row['batch_tokens']:,}",
                f"{row['device_tokens']:,}",
                f"{row['parts']:.1f}",
                f"{row['busiest']:.2f}",
                f"{1e6 * row['list_seconds'] / row['target_tokens']:.3f}",
                f"{1e3 * row['deal_seconds']:.2f}",
            ]
            for row in rows
        ),
    )


def strong_cell(made: Prediction, steps: int) -> str:
    """Milliseconds of an update, hours, and their interval."""
    low, high = made.interval(steps)
    return f"{milliseconds(made.seconds)} ms, {hours(made.hours(steps))} h ({hours(low)} to {hours(high)})"


def strong_table(recipe: Recipe, gpus: Sequence[Gpu], batches: Input) -> str:
    """The recipe's own batch on more GPUs."""
    rows = []
    for devices, cut in fixed_batch(recipe):
        for name, network in networks(devices):
            planned = plan(recipe.batch_tokens, cut, devices, network)
            made = [predict(gpu, recipe.shape, planned, batches) for gpu in gpus]
            rows.append(
                [
                    str(devices),
                    name,
                    f"{cut:,}",
                    str(len(planned.parts)),
                    *(strong_cell(one, recipe.max_steps) for one in made),
                ]
            )
    return table(("GPUs", "network", "device_tokens", "turns", *(gpu.name for gpu in gpus)), rows)


def weak_table(recipe: Recipe, gpus: Sequence[Gpu], batches: Input) -> str:
    """A batch that grows with the GPUs."""
    rows = []
    for devices in WIDER:
        batch = devices * recipe.device_tokens
        for name, network in networks(devices):
            planned = plan(batch, recipe.even(batch, devices), devices, network)
            made = [predict(gpu, recipe.shape, planned, batches) for gpu in gpus]
            fewer = recipe.max_steps * recipe.batch_tokens / batch
            rows.append([str(devices), name, f"{batch:,}", *(weak_cell(one, recipe.max_steps, fewer) for one in made)])
    return table(("GPUs", "network", "batch_tokens", *(gpu.name for gpu in gpus)), rows)


def weak_cell(made: Prediction, steps: int, fewer: float) -> str:
    """Tokens per second, hours for the paper's updates with their interval, and hours for the paper's tokens."""
    low, high = made.interval(steps)
    return (
        f"{made.tokens_per_second / 1000:,.0f}k/s, {hours(made.hours(steps))} h ({hours(low)} to {hours(high)}); "
        f"{hours(made.hours(fewer))} h"
    )


def stops_table(recipes: Sequence[Recipe], gpus: Sequence[Gpu], batches: Input) -> str:
    """Where more GPUs stop paying for the recipe's own batch."""
    rows = [
        [recipe.size, name, *(str(stops_paying(gpu, recipe, batches, network)) for gpu in gpus)]
        for recipe in recipes
        for name, network in NETWORKS.items()
    ]
    return table(("model", "network", *(gpu.name for gpu in gpus)), rows)


def batches_table(recipe: Recipe) -> str:
    """Batches that were trained with, in this project's knobs."""
    head = (
        "corpus",
        "GPUs x tokens",
        "batch_tokens",
        "learning rate",
        f"lr_factor, warmup {published.OTT_WARMUP}",
        f"GPUs at device_tokens {recipe.device_tokens:,}",
        "source",
    )
    rows = []
    for one in published.BATCHES:
        factor = rate_factor(one.rate, recipe.d_model, published.OTT_WARMUP)
        rows.append(
            [
                one.what,
                f"{one.gpus} x {one.device_tokens:,}",
                f"{one.batch_tokens:,}",
                f"{one.rate:g}" if one.rate else "not said",
                f"{factor:.2f}" if one.rate else "",
                str(one.batch_tokens // recipe.device_tokens),
                link(one.source),
            ]
        )
    return table(head, rows)
