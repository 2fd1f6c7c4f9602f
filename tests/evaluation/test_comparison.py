"""Comparison of systems: only a worse system differs significantly, and the numbers are the same each time."""

from __future__ import annotations

import random

import pytest

from transformer.evaluation.comparison import (
    System,
    against_the_first,
    changed_most,
    check_signatures,
    differing,
    over_seeds,
)

WORDS = ["the", "a", "dog", "man", "woman", "runs", "sleeps", "sits", "in", "on", "under", "park", "house", "tree"]
CHANCE = random.Random(3)
REFERENCES = [" ".join(CHANCE.choices(WORDS, k=CHANCE.randint(6, 12))) + "." for _ in range(200)]


def spoilt(lines: list[str], share: float, seed: int) -> list[str]:
    """The lines with some words replaced."""
    chance = random.Random(seed)
    return [
        " ".join(chance.choice(WORDS) if chance.random() < share else word for word in line.split()) for line in lines
    ]


def system(name: str, lines: list[str], **changes) -> System:
    scores = changes.pop("scores", {"bleu": 1.0, "valid_bleu": 1.0})
    signatures = changes.pop("signatures", {"bleu": "nrefs:1|case:mixed"})
    return System(name, {"seed": 1, "warmup": 400, **changes}, scores, signatures, lines)


def test_a_worse_system_differs_significantly_and_an_identical_one_does_not():
    good = spoilt(REFERENCES, 0.1, seed=1)
    systems = [system("base", good), system("same", list(good)), system("worse", spoilt(good, 0.2, seed=2))]
    rows = against_the_first(systems, REFERENCES)
    assert rows[0].keys() == {"name", "bleu"}
    assert rows[1]["delta"] == 0
    assert rows[2]["delta"] < 0
    for column in ("p_bootstrap", "p_randomisation"):
        assert rows[1][column] > 0.05
        assert rows[2][column] < 0.05
    assert against_the_first(systems, REFERENCES) == rows


def test_systems_with_equal_scores_have_p_values_of_1():
    one, other = ([f"{word} {line}" for line in REFERENCES] for word in ("wrong", "false"))
    assert one != other
    row = against_the_first([system("one", one), system("other", other)], REFERENCES)[1]
    assert (row["delta"], row["p_bootstrap"], row["p_randomisation"]) == (0, 1, 1)


def test_different_signatures_are_refused():
    other = system("b", REFERENCES, signatures={"bleu": "nrefs:1|case:lc"})
    with pytest.raises(ValueError, match=r"bleu of a .*case:mixed, of b .*case:lc"):
        check_signatures([system("a", REFERENCES), other])


def test_runs_that_differ_only_in_the_seed_are_one_row():
    scores = [{"bleu": bleu, "valid_bleu": bleu + 1} for bleu in (30.0, 32.0, 34.0, 20.0)]
    systems = [system(f"s{seed}", [], seed=seed, scores=score) for seed, score in enumerate(scores[:3])]
    systems.append(system("other", [], seed=0, warmup=800, scores=scores[3]))
    systems.append(system("again", [], seed=0, scores=scores[0]))  # one run has two names: it counts once
    three, one = over_seeds(systems)
    assert three == {"names": "s0, s1, s2", "runs": 3, "bleu_mean": 32.0, "bleu_deviation": 2.0,
                     "valid_bleu_mean": 33.0, "valid_bleu_deviation": 2.0}  # fmt: skip
    assert (one["runs"], one["bleu_mean"], one["bleu_deviation"]) == (1, 20.0, None)
    assert differing(systems) == ["seed", "warmup"]


def test_the_sentences_that_changed_most_come_first():
    before = ["a dog runs in the park.", "a man sleeps.", "two dogs."]
    after = ["a dog runs in the park!", "trees.", "two dogs."]
    rows = changed_most(system("x", before), system("y", after), ["s1", "s2", "s3"], before, count=5)
    assert [row["line"] for row in rows] == [2, 1]
    assert rows[0] | {"change": 0} == {"line": 2, "change": 0, "source": "s2", "reference": "a man sleeps.",
                                       "before": "a man sleeps.", "after": "trees."}  # fmt: skip
    assert rows[0]["change"] < 0
