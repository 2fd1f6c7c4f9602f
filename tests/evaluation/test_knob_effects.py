"""The effect of each knob is measured between runs equal in all other knobs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from transformer.evaluation.comparison import System, means_over_seeds
from transformer.evaluation.knob_effects import effects, remarks, score_table
from transformer.reporting.knob_page import page


def run(name: str, bleu: float, **params) -> System:
    return System(name, {"corpus": "toy", "warmup": 400, "seed": 1, **params}, {"bleu": bleu, "valid_bleu": bleu + 1})


SWEEP = [
    run("a", 30.0, seed=1),
    run("b", 31.0, seed=2),
    run("c", 33.0, seed=1, warmup=800),
    run("d", 36.0, seed=2, warmup=800),
    run("e", 5.0, corpus="copy"),
]


def test_an_effect_is_measured_between_runs_equal_in_all_else():
    (warmup,) = effects(SWEEP)  # no row of the seed
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


@pytest.mark.parametrize("part", ["data", "versions"])
def test_runs_of_other_data_or_versions_show_no_effect(part):
    other = replace(run("other", 10.0, warmup=800), made_from={part: {"name": "edited"}})
    runs = [replace(run("first", 30.0), made_from={part: {"name": "as it was"}}), other]
    assert effects(runs) == []
    rows = score_table(runs)
    assert len({row[part] for row in rows}) == 2
    (line,) = remarks(runs)
    assert line.startswith(f"other and first differ also in {part}: name")
    text = page(runs, ["old is stale"])
    assert line.replace(">", "&gt;") in text
    assert "Left out: old is stale" in text


def test_many_runs_and_seeds_are_listed_by_three_and_their_number():
    runs = [run(f"r{seed}", 30.0, seed=seed) for seed in range(50)]
    (row,) = means_over_seeds(runs)
    assert (row["names"], row["seeds"]) == ("r0, r1, r2 and 47 more", "0, 1, 2 and 47 more")
    best = replace(run("best", 40.0), made_from={"data": {"text": "edited"}})
    (line,) = remarks([*runs, best])
    assert line.startswith("r0, r1, r2 and 47 more and best differ also in data: text")


def test_the_table_has_the_best_run_first_and_the_knobs_that_differ():
    rows = score_table(SWEEP)
    assert [row["name"] for row in rows] == ["d", "c", "b", "a", "e"]
    assert list(rows[0]) == ["name", "bleu", "valid_bleu", "corpus", "warmup", "seed"]
