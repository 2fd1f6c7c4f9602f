"""Comparison of systems: only a worse system differs significantly, and the numbers are the same each time."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from transformer.evaluation.comparison import (
    System,
    changed_most,
    check_signatures,
    compare_with_first,
    differing_knobs,
    holm,
    means_over_seeds,
    what_else,
)

WORDS = ["the", "a", "dog", "man", "woman", "runs", "sleeps", "sits", "in", "on", "under", "park", "house", "tree"]
CHANCE = random.Random(3)
REFERENCES = [" ".join(CHANCE.choices(WORDS, k=CHANCE.randint(6, 12))) + "." for _ in range(100)]


def spoilt(lines: list[str], share: float, seed: int) -> list[str]:
    """The lines with some words replaced."""
    chance = random.Random(seed)
    return [
        " ".join(chance.choice(WORDS) if chance.random() < share else word for word in line.split()) for line in lines
    ]


def system(name: str, lines: list[str], **changes) -> System:
    scores = changes.pop("scores", {"bleu": 1.0, "valid_bleu": 1.0})
    signatures = changes.pop("signatures", {"bleu": "nrefs:1|case:mixed"})
    return System(name, {"target": "en", "seed": 1, "warmup": 400, **changes}, scores, signatures, lines)


def test_only_a_worse_system_differs_significantly(monkeypatch):
    good = spoilt(REFERENCES, 0.1, seed=1)
    systems = [system("base", good), system("same", list(good)), system("worse", spoilt(good, 0.2, seed=2))]
    rows = compare_with_first(systems, REFERENCES)
    assert rows[0].keys() == {"name", "bleu"}
    assert rows[1]["delta"] == 0
    assert rows[2]["delta"] < 0
    assert rows[2]["p_randomisation"] < 0.05 < rows[1]["p_randomisation"]
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    assert compare_with_first(systems, REFERENCES) == rows


def test_different_signatures_are_refused():
    other = system("b", REFERENCES, signatures={"bleu": "nrefs:1|case:lc"})
    with pytest.raises(ValueError, match=r"bleu of a .*case:mixed, of b .*case:lc"):
        check_signatures([system("a", REFERENCES), other])


def test_runs_that_differ_only_in_the_seed_are_one_row():
    scores = [{"bleu": bleu, "valid_bleu": bleu + 1} for bleu in (30.0, 32.0, 34.0, 20.0)]
    systems = [system(f"s{seed}", [], seed=seed, scores=score) for seed, score in enumerate(scores[:3])]
    systems.append(system("other", [], seed=0, warmup=800, scores=scores[3]))
    systems.append(system("again", [], seed=0, scores=scores[0]))  # one run has two names: it counts once
    three, single = means_over_seeds(systems)
    assert three == {
        "names": "s0, s1, s2",
        "seeds": "0, 1, 2",
        "runs": 3,
        "bleu_mean": 32.0,
        "bleu_deviation": 2.0,
        "valid_bleu_mean": 33.0,
        "valid_bleu_deviation": 2.0,
    }
    assert (single["runs"], single["bleu_mean"], single["bleu_deviation"]) == (1, 20.0, None)
    assert differing_knobs(systems) == ["seed", "warmup"]


def seeds(warmup: int, *values: float, **changes) -> list[System]:
    """Systems that differ only in the seed, with these BLEU scores."""
    return [
        system(f"{warmup}-{seed}", [], seed=seed, warmup=warmup, scores={"bleu": value, "valid_bleu": value}, **changes)
        for seed, value in enumerate(values)
    ]


def test_configurations_are_tested_over_their_seeds():
    systems = seeds(400, 30.0, 31.0, 32.0) + seeds(800, 33.0, 37.0) + seeds(1600, 30.5, 31.0, 31.5)
    base, better, same = means_over_seeds(systems)
    assert "p_seeds" not in base
    assert better["delta"] == 4
    # Welch 1947: t = 4 / sqrt(1/3 + 8/2), with 1.1691 degrees of freedom (Student's test would say 0.0706)
    assert better["p_seeds"] == pytest.approx(0.276, abs=1e-3)
    assert same["p_seeds"] == 1
    assert (better["p_seeds_holm"], same["p_seeds_holm"]) == (pytest.approx(2 * better["p_seeds"], abs=1e-4), 1)
    on_valid = [replace(system, scores={"bleu": 1.0, "valid_bleu": system.scores["bleu"]}) for system in systems]
    assert means_over_seeds(on_valid, "valid_bleu")[1]["p_seeds"] == better["p_seeds"]
    assert means_over_seeds(on_valid)[1]["p_seeds"] is None


def test_holms_correction_is_that_of_the_paper():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])  # the example of textbooks
    assert holm([0.4, 0.9]) == [0.8, 0.9]
    assert holm([]) == []


def test_several_comparisons_have_corrected_p_values_and_one_has_none():
    good = spoilt(REFERENCES, 0.1, seed=1)
    worse, worst = (system(f"worse {seed}", spoilt(good, 0.03, seed=seed)) for seed in (2, 3))
    rows = compare_with_first([system("base", good), worse, worst], REFERENCES)
    smallest = min(row["p_randomisation"] for row in rows[1:])
    assert min(row["p_randomisation_holm"] for row in rows[1:]) == pytest.approx(min(1, 2 * smallest), abs=1e-4)
    assert "p_randomisation_holm" not in compare_with_first([system("base", good), worse], REFERENCES)[1]


def test_what_differs_besides_the_knobs_is_named():
    def variant(**parts) -> System:
        files = {f"{name}.py": name for name in "abcde"}
        return System(
            "x", {}, {}, made_from={"data": {"data/raw": "1"}, "code": files, "versions": {"torch": "2.13.0"}} | parts
        )

    assert what_else(variant(), variant()) == ""
    assert what_else(variant(), variant(data={"data/raw": "2"})) == "data: data/raw"
    assert what_else(variant(), variant(versions={"torch": "2.12.0"})) == "versions: torch 2.13.0 -> 2.12.0"
    assert what_else(variant(), variant(code={})) == "code: a.py, b.py, c.py and 2 more"


def test_the_sentences_that_changed_most_come_first():
    before = ["a dog runs in the park.", "a man sleeps.", "two dogs."]
    after = ["a dog runs in the park!", "trees.", "two dogs."]
    rows = changed_most(system("x", before), system("y", after), ["s1", "s2", "s3"], before, count=5)
    assert [row["line"] for row in rows] == [2, 1]
    assert rows[0] | {"change": 0} == {
        "line": 2,
        "change": 0,
        "source": "s2",
        "reference": "a man sleeps.",
        "before": "a man sleeps.",
        "after": "trees.",
    }
    assert rows[0]["change"] < 0
