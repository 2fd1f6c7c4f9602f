"""docs/scaling.md: scaling.md.jinja, filled in from docs/scaling.json, docs/gpu.json and the published figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from benchmarks import published
from benchmarks import scaling_tables as tables
from benchmarks.predictions import LATENCY, MOST_TOKENS, NETWORKS, Gpu, Recipe, plan, predict, stops_paying
from benchmarks.scaling_fits import Fit, checks, cpu_runs, input_of, least_checks, made, own_fits, published_fits
from benchmarks.step_fit import sizes_of
from benchmarks.step_time import Input

TEMPLATE = Path(__file__).with_name("scaling.md.jinja")


def page(stored: Mapping[str, Any], gpu_results: Mapping[str, dict]) -> str:
    """The page. stored: docs/scaling.json. gpu_results: docs/gpu.json."""
    batches = input_of(stored["input"])
    recipes, gpus = [Recipe.load(size) for size in ("base", "big")], known_gpus()
    own = own_fits(gpu_results, published_fits()["v100"].speed.bandwidth)
    values = {
        **of_fits(),
        **of_cpu(stored),
        **of_cuts(recipes[0], gpus, batches),
        **of_batches(recipes[1]),
        "link": tables.link,
        "input": tables.input_table(stored["input"]),
        "pairs": f"{stored['input'][0]['pairs']:,}",
        "recipes": [of_recipe(recipe, gpus, [gpu_of(one) for one in own], batches) for recipe in recipes],
        "overlaps": [f"{savings(recipe, gpus, batches):.0%}" for recipe in recipes],
        "stops": tables.stops_table(recipes, gpus, batches),
        "stop_float32": stops(recipes, gpus[:1], batches),
        "stop_fp16": stops(recipes, gpus[1:], batches),
        "own": own,
        "own_fits": tables.fits_table(own),
    }
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True, autoescape=False)
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(values)


def of_fits() -> dict[str, Any]:
    """What the page says of the fits to published speeds and of the figures that were held out."""
    (slip, reason), *_ = published.LEFT_OUT
    found = checks()
    on_p100 = [check for check in found if "vaswani" in check.sources]
    return {
        "fits": tables.fits_table(published_fits().values()),
        "share": f"{published.TARGET_SHARE:.2f}",
        "vocabulary": f"{published.NVIDIA_VOCABULARY:,}",
        "slip": slip,
        "slip_speed": f"{slip.words_per_second:,}",
        "slip_reason": reason,
        "checks": tables.checks_table(found),
        "least": tables.least_table(least_checks()),
        "slower": [f"{check.published / check.predicted:.1f}" for check in on_p100],
        "inside": f"{max(gpu.error for gpu in known_gpus()):.0%}",
        "between": f"{max(gpu.error_between for gpu in known_gpus()):.0%}",
    }


def of_cpu(stored: Mapping[str, Any]) -> dict[str, Any]:
    """What the page says of processes on a CPU."""
    cores = stored["machine"]["cores"]
    runs = cpu_runs(stored["processes"], cores)
    whole = made("1, 2 and 4 processes", runs, {}, waits=True)
    ahead = made("1 and 2 processes", [run for run in runs if run.plan.devices <= 2], {}, waits=True)
    return {
        "cores": cores,
        "torch": stored["machine"]["torch"],
        "load": stored["machine"]["load"],
        "rounds": min(row["rounds"] for row in stored["processes"]),
        "cpu_fits": tables.fits_table([whole, ahead]),
        "cpu": tables.cpu_table(whole, ahead),
    }


def of_cuts(base: Recipe, gpus: Sequence[Gpu], batches: Input) -> dict[str, Any]:
    """What the page says of device_tokens."""
    even = base.even(base.batch_tokens, 8)
    shorter = []
    for recipe in (base, Recipe.load("big")):
        for gpu in gpus:
            before, after = (
                predict(gpu, recipe.shape, plan(recipe.batch_tokens, cut, 8, None), batches).seconds
                for cut in (recipe.device_tokens, even)
            )
            shorter.append(1 - after / before)
    return {
        "base": base,
        "even": even,
        "even_64": base.even(base.batch_tokens, 64),
        "longest": base.longest,
        "even_saving": f"{min(shorter):.0%} to {max(shorter):.0%}",
        "latency": f"{1e6 * LATENCY:.0f}",
        "most": f"{MOST_TOKENS:,}",
    }


def of_batches(big: Recipe) -> dict[str, Any]:
    """What the page says of the size of batches."""
    most = {batch.what: batch.batch_tokens for batch in published.BATCHES}
    german, french = most["WMT14 en-de"], most["WMT14 en-fr"]
    return {
        "batches": tables.batches_table(big),
        "german": f"{german:,}",
        "german_plain": german,
        "german_gpus": german // big.device_tokens,
        "french_gpus": french // big.device_tokens,
    }


def of_recipe(recipe: Recipe, gpus: Sequence[Gpu], own: Sequence[Gpu], batches: Input) -> dict[str, str]:
    """What the page says of a recipe."""
    return {
        "size": recipe.size,
        "steps": f"{recipe.max_steps:,}",
        "tokens": f"{recipe.device_tokens:,}",
        "strong": tables.strong_table(recipe, gpus, batches),
        "weak": tables.weak_table(recipe, gpus, batches),
        "own": tables.strong_table(recipe, own, batches),
    }


def between_error() -> float:
    """The larger error of the log on 16 machines, over the networks that it may have had."""
    return max(abs(check.error) for check in checks() if check.between)


def known_gpus() -> list[Gpu]:
    """The GPUs of the published fits.

    error: the worst of a row left out; in float32, of which there are too few rows, that of fp16 on the same GPU.
    error_between: at least that of the log on 16 machines.
    """
    fits, found = published_fits(), []
    for name, key, key_of_errors in (
        ("V100, float32", "float32", "v100"),
        ("V100, fp16", "v100", "v100"),
        ("A100, fp16", "a100", "a100"),
    ):
        worst = sizes_of(fits[key_of_errors].left_out).worst
        found.append(Gpu(name, fits[key].speed, worst, max(worst, between_error())))
    return found


def gpu_of(fitted: Fit) -> Gpu:
    """The GPU of a fit to this project's own speed, with errors at least as large as those of the published fits."""
    worst = max(fitted.errors.worst, sizes_of(published_fits()["v100"].left_out).worst)
    return Gpu(fitted.name, fitted.speed, worst, max(worst, between_error()))


def stops(recipes: Sequence[Recipe], gpus: Sequence[Gpu], batches: Input) -> str:
    """The fewest and the most GPUs at which the recipes' batch stops paying."""
    found = [
        stops_paying(gpu, recipe, batches, network)
        for recipe in recipes
        for gpu in gpus
        for network in NETWORKS.values()
    ]
    return f"{min(found)} to {max(found)}" if len(set(found)) > 1 else str(found[0])


def savings(recipe: Recipe, gpus: Sequence[Gpu], batches: Input) -> float:
    """The largest share of an update on 8 GPUs that overlap would save, over the GPUs."""
    cut = recipe.even(recipe.batch_tokens, 8)
    shares = []
    for gpu in gpus:
        apart, overlapping = (
            predict(gpu, recipe.shape, plan(recipe.batch_tokens, cut, 8, None, overlaps), batches)
            for overlaps in (False, True)
        )
        shares.append(1 - overlapping.seconds / apart.seconds)
    return max(shares)
