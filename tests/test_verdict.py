"""What scores mean in words."""

import pytest

from transformer.verdict import BANDS, shipped_scores, verdict

SCORES = {"bleu": 1.7, "chrf": 15.24, "sentences": 1_500, "ter": 99.0}


def test_a_model_that_learnt_nothing_is_called_not_usable():
    scores = shipped_scores("news", SCORES, {"bleu": "tok:13a"})
    assert verdict(scores) == "BLEU 1.7, chrF 15.2 on 1,500 sentences of news: its translations are not usable."


def test_bleu_over_characters_is_not_counted():
    scores = shipped_scores("news", {**SCORES, "bleu": 60.0}, {"bleu": "nrefs:1|tok:char"})
    assert verdict(scores) == "chrF 15.2 on 1,500 sentences of news: its translations are not usable."


@pytest.mark.parametrize("band", range(len(BANDS)))
def test_the_better_band_of_bleu_and_chrf_counts(band):
    least_bleu, least_chrf, words = BANDS[band]
    for bleu, chrf in ((least_bleu, 0), (least_bleu + 9.9, least_chrf), (0, least_chrf)):
        assert words in verdict({"bleu": bleu, "chrf": chrf, "sentences": 1})


def test_the_words_go_with_the_number_that_is_shown():
    for bleu, words in ((39.96, "good drafts"), (39.94, "can be understood")):
        assert words in verdict({"bleu": bleu, "chrf": 0, "sentences": 1})


@pytest.mark.parametrize(
    "scores", [None, 3, {}, {"chrf": 3.0}, {"chrf": "x", "sentences": 1}, {"bleu": 1, "sentences": 2}]
)
def test_a_folder_without_scores_has_no_verdict(scores):
    assert verdict(scores) == ""
