"""The effect of each knob is measured between runs equal in all other knobs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.evaluation.comparison import System
from transformer.evaluation.sweeps import effects, remarks, score_table
from transformer.reporting.sweep_page import page


def run(name: str, bleu: float, **params) -> System:
    return System(name, {"corpus": "toy", "warmup": 400, "seed": 1, **params}, {"bleu": bleu, "valid_bleu": bleu + 1})


SWEEP = [
    run("a", 30.0, seed=1),
    run("b", 31.0, seed=2),
    run("c", 33.0, seed=1, warmup=800),
    run("d", 36.0, seed=2, warmup=800),
    run("e", 5.0, corpus="copy"),
]


def test_the_effect_of_a_knob_is_measured_between_runs_equal_in_all_other_knobs():
    warmup, seed = effects(SWEEP)
    assert warmup == {
        "knob": "warmup",
        "from": 400,
        "to": 800,
        "pairs": 2,
        "bleu": 4.0,
        "bleu_deviation": 1.41,
        "valid_bleu": 4.0,
        "valid_bleu_deviation": 1.41,
    }
    assert (seed["knob"], seed["pairs"], seed["bleu"]) == ("seed", 2, 2.0)


def test_runs_on_different_text_are_never_compared():
    assert effects([SWEEP[0], SWEEP[4]]) == []


@pytest.mark.parametrize("part", ["data", "code", "versions"])
def test_runs_that_differ_in_data_code_or_versions_show_no_effect_of_a_knob_and_the_table_says_so(part):
    other = replace(run("other", 10.0, warmup=800), origins={part: {"name": "edited"}})
    runs = [replace(run("one", 30.0), origins={part: {"name": "as it was"}}), other]
    assert effects(runs) == []
    rows = score_table(runs)
    assert len({row[part] for row in rows}) == 2
    (line,) = remarks(runs)
    assert line.startswith(f"other and one differ also in {part}: name")
    text = page(runs, ["old is stale"])
    assert line.replace(">", "&gt;") in text
    assert "Left out: old is stale" in text


def test_runs_with_equal_data_code_and_versions_have_no_columns_for_them():
    assert list(score_table(SWEEP)[0]) == ["name", "bleu", "valid_bleu", "corpus", "warmup", "seed"]
    assert remarks(SWEEP) == []


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3), st.floats(0, 100)), unique_by=lambda one: one[:2]))
def test_a_constant_gain_is_found_in_any_set_of_runs(grid):
    """Adding 7 to each run with warmup 2 changes the effect of warmup by 7, for all sets of seeds."""
    runs = [run(str(place), bleu, warmup=warmup, seed=seed) for place, (warmup, seed, bleu) in enumerate(grid)]
    raised = [
        run(
            one.name,
            one.scores["bleu"] + 7 * (one.params["warmup"] == 2),
            **{k: one.params[k] for k in ("warmup", "seed")},
        )
        for one in runs
    ]
    before = {(row["from"], row["to"]): row for row in effects(runs) if row["knob"] == "warmup"}
    after = {(row["from"], row["to"]): row for row in effects(raised) if row["knob"] == "warmup"}
    assert before.keys() == after.keys()
    for (low, high), row in after.items():
        gain = 7 * (high == 2) - 7 * (low == 2)
        assert row["bleu"] - before[low, high]["bleu"] == pytest.approx(gain, abs=0.011)


def test_the_table_has_the_best_run_first_and_the_knobs_that_differ():
    rows = score_table(SWEEP)
    assert [row["name"] for row in rows] == ["d", "c", "b", "a", "e"]
    assert list(rows[0]) == ["name", "bleu", "valid_bleu", "corpus", "warmup", "seed"]


def test_the_page_has_a_chart_per_knob_and_loads_no_script():
    text = page(SWEEP)
    assert 'id="chart-warmup"' in text
    assert 'id="chart-corpus"' not in text
    assert "36.00" in text
    assert "<script src" not in text
    assert page(SWEEP) == text
