"""Intervals of scores are those of sacreBLEU's bootstrap, and each sentence is in its bucket."""

import json

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.ter import TER

from transformer.evaluation import buckets as parts
from transformer.evaluation.intervals import estimate_bleu, estimate_exact_match, margins, margins_of_sets
from transformer.evaluation.scores import corpus_scores, exact_match_by_label

REFERENCES = [f"the {word} dog number {n} runs over the hill ." for n in range(12) for word in ("old", "young")]
HYPOTHESES = [line if n % 3 else line.replace("runs over", "walks on") for n, line in enumerate(REFERENCES)]


def test_the_interval_of_bleu_is_that_of_sacrebleu():
    score = BLEU().corpus_score(HYPOTHESES, [REFERENCES], n_bootstrap=1000)
    direct = json.loads(score.format(width=6, is_json=True, signature="a:b"))
    result = estimate_bleu(HYPOTHESES, REFERENCES, "en")
    assert result.score == pytest.approx(direct["score"], abs=1e-5)
    assert result.margin == pytest.approx(direct["confidence_var"], abs=1e-5)
    assert 1 < result.margin < 20


def test_each_score_has_an_interval_whatever_seed_is_set(monkeypatch):
    labels = ["even" if n % 2 else "odd even" for n in range(len(REFERENCES))]
    result = margins(HYPOTHESES, REFERENCES, "en", labels)
    scores = corpus_scores(HYPOTHESES, REFERENCES, "en")[0] | exact_match_by_label(HYPOTHESES, REFERENCES, labels)
    assert result.keys() == scores.keys()
    ter = TER().corpus_score(HYPOTHESES, [REFERENCES], n_bootstrap=1000)
    assert result["ter"] == pytest.approx(
        json.loads(ter.format(width=6, is_json=True, signature="a:b"))["confidence_var"], abs=1e-5
    )
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    assert margins(HYPOTHESES, REFERENCES, "en", labels) == result


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(("answered", "lines", "blank"), [(5, 500, 0), (0, 20, 0), (2, 2, 1), (1, 3, 3)])
def test_a_bad_or_small_test_set_has_intervals(answered, lines, blank, language):
    """Some resamples have a score of 0. A test set that is blank on both sides has no exact match."""
    references = [""] * blank + [f"a small house number {line} stands here" for line in range(lines - blank)]
    hypotheses = [*references[-answered:], *[""] * lines][:lines][::-1] if answered else [""] * lines
    values = margins(hypotheses, references, language)
    assert {"bleu", "chrf", "ter", *(["exact_match"] if blank < lines else [])} <= values.keys()
    assert all(np.isfinite(value) for value in values.values())


def test_the_interval_of_exact_match_is_about_binomial():
    references = ["a"] * 400
    hypotheses = ["a"] * 300 + ["b"] * 100
    score, margin = estimate_exact_match(hypotheses, references)
    assert score == 75
    assert margin == pytest.approx(1.96 * 100 * np.sqrt(0.75 * 0.25 / 400), rel=0.04)


def test_several_test_sets_have_an_interval_each():
    result = margins_of_sets(
        {
            "news": (REFERENCES, HYPOTHESES),
            "talks": (REFERENCES[:9], HYPOTHESES[:9]),
            "valid": (REFERENCES, REFERENCES),
        },
        "en",
    )
    assert result["bleu"] == result["bleu_news"] != result["bleu_talks"]
    assert result["valid_bleu"] == 0
    assert "chrf" in result


def test_each_bucket_has_the_bleu_of_its_sentences():
    values = [3, 5, 6, None, 70, 0, 5]
    chosen = REFERENCES[:7]
    result = parts.buckets(values, parts.LENGTHS, HYPOTHESES[:7], chosen, "en")
    assert [(bucket.name, bucket.sentences) for bucket in result] == [
        ("0", 1),
        ("1–5", 3),
        ("6–10", 1),
        ("51 or more", 1),
    ]
    rows = [0, 1, 6]
    direct = BLEU().corpus_score([HYPOTHESES[row] for row in rows], [[chosen[row] for row in rows]])
    assert result[1].bleu == pytest.approx(direct.score)
    assert [bucket.margin for bucket in result] == [None] * 4  # so few sentences say little


def test_the_rarest_word_is_found_by_its_number_in_train():
    lines = ["▁a 7", ", 900", "▁b  c 2", "▁d 40", "d 2"]  # a token has no space, but a no-break one
    words = [["▁a", ","], ["▁d"], ["▁new", "▁d"], []]
    counts = parts.count_words(lines, {word for line in words for word in line})
    assert counts == {"a": 7, ",": 900, "d": 42}
    assert parts.rarest_counts(words, counts) == [7, 42, 0, None]
    in_brackets = [["▁(", "a", ")"], ["▁a"]]
    assert parts.rarest_counts(in_brackets, counts | {"(": 50, ")": 50}) == [7, 7]


def test_a_bucket_has_a_margin_from_twenty_sentences_on():
    few, enough = (
        parts.buckets([3] * n, parts.LENGTHS, HYPOTHESES[:n], REFERENCES[:n], "en")[0].margin for n in (19, 20)
    )
    assert few is None
    assert enough
