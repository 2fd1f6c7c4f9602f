"""The model of the time of an update keeps its laws, a fit finds what made its data, docs/scaling.md is up to date."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiny import ROOT

from benchmarks import published, scaling_page, step_measure
from benchmarks.flops import SIZES, Size
from benchmarks.predictions import GIGABIT, RECIPES, Gpu, Prediction, Recipe, plan, predict, rate_factor
from benchmarks.published import SOURCES
from benchmarks.scaling_fits import checks, cpu_runs, input_of, own_fits
from benchmarks.scaling_page import page
from benchmarks.step_fit import error, fit, left_out_errors, measured
from benchmarks.step_time import (
    Input,
    Measured,
    Network,
    Plan,
    Shape,
    Speed,
    all_reduce_seconds,
    exposed_seconds,
    pass_seconds,
    ring_traffic,
    update_seconds,
)
from transformer.model.config import TransformerConfig
from transformer.model.transformer import Transformer
from transformer.text.pairs import Pairs
from transformer.training.distributed import World
from transformer.training.schedule import learning_rate

BIG = Shape.of(SIZES["big"], published.VOCABULARY)
speeds = st.builds(
    Speed,
    launch=st.floats(1e-5, 1e-1),
    rate=st.floats(1e10, 1e15),
    per_parameter=st.floats(1e-12, 1e-8),
    bandwidth=st.floats(1e8, 1e12),
)
networks = st.builds(Network, bandwidth=st.floats(1e8, 1e11), latency=st.floats(0, 1e-3))


def test_the_shape_has_the_parameters_of_this_projects_model_but_biases_and_norms():
    for size in SIZES.values():
        config = TransformerConfig(
            vocabulary=97,
            max_positions=9,
            dropout=0.0,
            norm="pre",
            tie_embeddings=True,
            positions="sinusoidal",
            **vars(size),
        )
        with torch.device("meta"):
            model = Transformer(config)
        matrices = [parameter for parameter in model.parameters() if parameter.ndim == 2]
        shape = Shape.of(size, 97)
        assert shape.parameters == sum(parameter.numel() for parameter in matrices)
        assert [shape.embedding] == [matrices[0].numel()]


@given(st.floats(1, 1e12), st.integers(1, 10_000))
def test_the_traffic_of_a_ring_grows_with_its_members_and_approaches_twice_the_bytes(nbytes, members):
    traffic = ring_traffic(nbytes, members)
    assert traffic <= ring_traffic(nbytes, members + 1) <= 2 * nbytes
    assert 2 * nbytes - traffic == pytest.approx(2 * nbytes / members)
    assert ring_traffic(nbytes, 1) == 0


@given(speeds, st.integers(2, 15), st.floats(1, 1e5))
def test_from_two_gpus_of_a_machine_on_more_never_lower_tokens_per_second_at_the_same_work_each(speed, gpus, tokens):
    few, more = (count * tokens / update_seconds(BIG, speed, Plan(count, (tokens,), 4)) for count in (gpus, gpus + 1))
    assert more >= few * (1 - 1e-9)


def tokens_per_second(speed, network, machines, tokens):
    """Of `machines` machines whose every device has `tokens` tokens of an update."""
    devices = network.devices * machines
    return devices * tokens / update_seconds(BIG, speed, Plan(devices, (tokens,), 4, network))


@given(speeds, networks, st.integers(2, 100), st.floats(1, 1e5))
def test_from_two_machines_on_more_never_lower_tokens_per_second_if_messages_cost_no_time(
    speed, network, machines, tokens
):
    network = replace(network, latency=0.0)
    few, more = (tokens_per_second(speed, network, count, tokens) for count in (machines, machines + 1))
    assert more >= few * (1 - 1e-9)


def test_a_third_machine_can_lower_tokens_per_second_when_messages_take_longer_than_all_else():
    network = Network(bandwidth=1e11, latency=1.0)
    two, three = (tokens_per_second(Speed(1e-5, 1e15, 1e-12, 1e12), network, count, 1.0) for count in (2, 3))
    assert three < two


def test_a_second_gpu_can_lower_tokens_per_second_when_sums_take_longer_than_computing():
    slow = Speed(1e-3, 1e13, 1e-10, bandwidth=1e8)
    one, two = (gpus * 1000 / update_seconds(BIG, slow, Plan(gpus, (1000.0,), 4)) for gpus in (1, 2))
    assert two < one


@given(speeds, st.floats(1, 1e5), st.floats(1, 1e5))
def test_a_pass_takes_the_longer_of_launching_and_multiplying_and_on_a_cpu_both(speed, tokens, more):
    launching, multiplying = BIG.layers * speed.launch, tokens * BIG.flop_per_token / speed.rate
    assert pass_seconds(BIG, speed, tokens) == max(launching, multiplying)
    assert pass_seconds(BIG, replace(speed, waits=True), tokens) == launching + multiplying
    assert pass_seconds(BIG, speed, tokens + more) >= pass_seconds(BIG, speed, tokens)


@given(st.floats(0, 10), st.floats(0, 10), st.floats(0, 1))
def test_overlap_hides_at_most_the_backward_pass_and_never_the_last_bucket(all_reduce, backward, last_share):
    seen = exposed_seconds(all_reduce, backward, last_share)
    assert all_reduce * last_share <= seen <= all_reduce
    assert seen >= all_reduce - backward


def test_machines_of_one_gpu_sum_over_the_network_alone_and_one_machine_needs_none():
    speed, network = Speed(0, 1e12, 0, 1e9), Network(1e8, 0.0, devices=1)
    assert all_reduce_seconds(BIG, speed, Plan(4, (1.0,), 4, network)) == pytest.approx(
        ring_traffic(4 * BIG.parameters, 4) / 1e8
    )
    full = Network(1e8, 1.0)
    assert all_reduce_seconds(BIG, speed, Plan(8, (1.0,), 4, full)) == all_reduce_seconds(
        BIG, speed, Plan(8, (1.0,), 4)
    )


def test_processes_that_share_cores_take_turns_and_making_a_batch_is_not_shared():
    speed, made = Speed(1e-3, 1e12, 1e-10, 1e9), Input(1e-6, 1e-5)
    four, shared = Plan(4, (500.0,), 4, tokens=2000.0, all_parts=4), Plan(4, (500.0,), 4, cores=2)
    alone = update_seconds(BIG, speed, replace(four, tokens=0.0))
    assert update_seconds(BIG, speed, shared) == pytest.approx(2 * alone)
    assert update_seconds(BIG, speed, four, made) == pytest.approx(alone + 2000e-6 + 16e-5)


def runs_of(speed: Speed) -> list[Measured]:
    """Updates that take exactly as long as the model says: three depths, batches from small to large, 1 and 8 GPUs."""
    found = []
    for layers in (2, 6, 24):
        shape = Shape.of(replace(SIZES["big"], layers=layers), 30_000)
        middle = (
            shape.layers * speed.launch * speed.rate / shape.flop_per_token
        )  # tokens where launches are just hidden
        for gpus in (1, 8):
            for tokens in (middle / 10, middle / 3, 3 * middle, 10 * middle):
                planned = Plan(gpus, (tokens,), 2)
                found.append(Measured(str(tokens), shape, planned, update_seconds(shape, speed, planned)))
    return found


@settings(max_examples=4, deadline=None)
@given(st.floats(1e-3, 1e-2), st.floats(1e13, 1e14), st.floats(5e-11, 5e-10), st.floats(1e10, 1e11))
def test_a_fit_of_made_up_updates_finds_what_made_them(launch, rate, per_parameter, bandwidth):
    speed = Speed(launch, rate, per_parameter, bandwidth)
    runs = runs_of(speed)
    found = fit(runs)
    assert vars(found) == pytest.approx(vars(speed), rel=1e-3)
    given_one = fit(runs, {"bandwidth": bandwidth}, near=speed)
    assert given_one.bandwidth == bandwidth
    assert given_one.rate == pytest.approx(rate, rel=1e-3)


def test_a_row_that_is_left_out_is_predicted_from_the_others_alone():
    speed = Speed(5e-3, 4e13, 3e-10, 4e10)
    runs = runs_of(speed)
    wrong = replace(runs[5], seconds=2 * runs[5].seconds)
    errors = left_out_errors([*runs[:5], wrong, *runs[6:]])
    assert errors[5] == pytest.approx(-0.5, abs=1e-3)
    assert error(speed, wrong) == pytest.approx(-0.5)


def all_rows() -> list[published.Row]:
    """All published rows, also those that are left out."""
    return [
        *published.FAIRSEQ_V100,
        *published.FAIRSEQ_A100,
        *published.NVIDIA_MIXED,
        *published.NVIDIA_FLOAT32,
        *published.HELD_OUT,
        *(row for row, _ in published.LEFT_OUT),
    ]


def test_every_published_figure_has_an_address():
    named = [*all_rows(), published.OTT_LOG, *published.BATCHES]
    assert {one.source for one in named} <= set(SOURCES)
    assert {source for check in checks() for source in check.sources} <= set(SOURCES)
    assert all(re.fullmatch(r"https?://\S+/\S+", address) for address in SOURCES.values())


def test_no_row_that_is_held_out_or_left_out_is_fitted():
    fitted = {*published.FAIRSEQ_V100, *published.FAIRSEQ_A100, *published.NVIDIA_MIXED, *published.NVIDIA_FLOAT32}
    assert not fitted & {*published.HELD_OUT, *(row for row, _ in published.LEFT_OUT)}
    assert len(all_rows()) == len(set(all_rows()))


def test_the_row_that_is_left_out_contradicts_the_rows_of_its_own_table():
    (slip, _), *_ = published.LEFT_OUT
    of = {(row.gpus, row.batch_tokens): row.words_per_second for row in published.NVIDIA_MIXED}
    assert slip.words_per_second < of[4, 2560]
    assert slip.words_per_second < of[8, 5120] / 3


def test_seconds_of_a_published_row_are_its_tokens_divided_by_its_speed():
    run = measured(published.Row("nvidia", "V100", "mixed", 6, 8, 5120, 235077))
    assert run.seconds * 235077 == pytest.approx(8 * 5120 * 617_000 / 655_360)


def test_the_plan_of_a_recipe_is_what_this_trainer_deals():
    recipe = Recipe.load("base")
    uneven = plan(recipe.batch_tokens, recipe.device_tokens, 8, None)
    assert sum(uneven.parts) == pytest.approx(published.TARGET_SHARE * 4000)  # 3,000 and the rest of 25,000
    even = plan(recipe.batch_tokens, recipe.even(recipe.batch_tokens, 8), 8, None)
    assert len(even.parts) == 1
    alone = plan(recipe.batch_tokens, recipe.device_tokens, 1, None)
    assert sum(alone.parts) == pytest.approx(alone.tokens) == pytest.approx(published.TARGET_SHARE * 25_000)
    assert recipe.even(recipe.batch_tokens, 100_000) == recipe.longest == 251


def test_recipes_of_both_sizes_have_their_own_shape():
    assert [Recipe.load(size).shape for size in RECIPES] == [Shape.of(SIZES[size], 37_000) for size in RECIPES]


@given(st.floats(1e-4, 1e-2), st.sampled_from([512, 1024]), st.integers(1000, 10_000))
def test_the_factor_of_a_learning_rate_makes_equation_3_peak_there(peak, d_model, warmup):
    assert learning_rate(warmup, d_model, warmup, rate_factor(peak, d_model, warmup)) == pytest.approx(peak)


def test_the_interval_holds_every_time_that_the_error_allows():
    made = Prediction(seconds=0.3, tokens=1000.0, error=0.2)
    low, high = made.interval(12_000)
    assert (low, made.hours(12_000), high) == pytest.approx((1 / 1.2, 1.0, 1 / 0.8))
    gpu, network = Gpu("x", Speed(1e-3, 1e13, 1e-10, 1e10), 0.1, 0.3), Network(100 * GIGABIT)
    errors = [predict(gpu, BIG, plan(25_000, 400, count, network), Input()).error for count in (8, 9)]
    assert errors == [0.1, 0.3]


def test_this_projects_own_gpu_is_fitted_only_where_both_sizes_have_both_batches(monkeypatch):
    speed, results = Speed(2e-3, 3e14, 1e-10, 4e10), {}
    for size in ("base", "big"):
        for thousands in (25, 100):
            shape = Shape.of(SIZES[size], 32_000)
            tokens = 1000.0 * thousands * 0.9
            rate = tokens / update_seconds(shape, speed, Plan(1, (tokens,), 4))
            row = {"program": "ours", "precision": "bfloat16", "tokens_per_second": rate, "padding_share": 0.1}
            results[f"speed-{size}-{thousands}k"] = {
                "rows": [row, row | {"program": "torch"}],
                "machine": {"device": "H"},
            }
    (found,) = own_fits(results, 4e10)
    assert found.name == "ours, bfloat16, H"
    assert (found.speed.rate, found.speed.per_parameter) == pytest.approx((3e14, 1e-10), rel=0.01)
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(
        scaling_page,
        "of_cpu",
        lambda stored: dict.fromkeys(("cores", "torch", "load", "rounds"), 0) | dict.fromkeys(("cpu_fits", "cpu"), ""),
    )
    made = page(stored(), results)
    assert "| ours, bfloat16, H | 4 |" in made
    assert "### big, this trainer\n\n| GPUs |" in made
    assert "Eight and more GPUs were never measured" in made
    results.pop("speed-big-100k")
    assert own_fits(results, 4e10) == []
    assert own_fits({"speed-base-25k": {"skipped": "no GPU"}}, 4e10) == []


def test_updates_of_a_process_are_timed_and_its_trainer_has_one_micro_batch_without_padding(tmp_path):
    work = step_measure.Work(Size(16, 32, 2, 1), 50, 60)
    made = step_measure.trainer(work, tmp_path / "one", World())
    assert made.update(1).tokens == 60
    setting = {
        "processes": 1,
        "rank": 0,
        "folder": str(tmp_path),
        "works": [{"size": vars(work.size), "vocabulary": work.vocabulary, "tokens": work.tokens}],
    }
    assert step_measure.prepare(setting)({"work": 0, "first": 1, "updates": 2})["seconds"] > 0


@pytest.mark.full
def test_groups_of_processes_take_turns_and_every_work_has_a_row_for_each():
    work = step_measure.Work(Size(16, 32, 2, 1), 50, 60)
    rows = step_measure.measure(1, works=[work])
    assert [row["processes"] for row in rows] == list(step_measure.PROCESSES)
    (run, *_) = cpu_runs(rows, cores=2)
    assert run.shape == Shape.of(work.size, 50)
    assert run.seconds == rows[0]["seconds"] > 0


def test_the_cost_of_making_batches_is_counted_on_pairs_like_those_of_wmt14():
    rows = step_measure.input_costs([(8, 2500, 300), (2, 2500, 2500)], pairs=2000, rounds=1)
    assert rows[0]["parts"] > 8
    assert rows[1]["parts"] == 1
    assert rows[1]["busiest"] == 2  # one of two has all
    with step_measure.long_corpus(2000) as corpus:
        assert isinstance(corpus, Pairs)
        assert 20 < float(np.mean(corpus.target_lengths)) < 36
    costs = input_of(rows)
    assert costs.list_per_token > 0
    assert costs.deal * rows[0]["parts"] * 8 == pytest.approx(rows[0]["deal_seconds"])


def stored() -> dict:
    """What was measured for the page."""
    return json.loads((ROOT / "docs/scaling.json").read_text(encoding="utf-8"))


def test_the_numbers_of_the_page_are_those_that_the_command_computes(monkeypatch):
    """Words are equal; numbers within one in the last place that is shown, since other processors round otherwise."""
    monkeypatch.chdir(ROOT)
    made = page(stored(), json.loads((ROOT / "docs/gpu.json").read_text(encoding="utf-8")))
    shown = Path(ROOT, "docs/scaling.md").read_text(encoding="utf-8")
    number = re.compile(r"\d[\d,]*(?:\.\d+)?")
    assert number.sub("N", shown) == number.sub("N", made), "run `python -m benchmarks.predict --page docs/scaling.md`"
    for old, new in zip(number.findall(shown), number.findall(made), strict=True):
        place = 10.0 ** -len(old.partition(".")[2])
        assert math.isclose(
            float(old.replace(",", "")), float(new.replace(",", "")), rel_tol=0.01, abs_tol=1.01 * place
        )
