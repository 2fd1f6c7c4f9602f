"""What recipe expects and what the report advises, from the tables of measurements."""

from pathlib import Path

import pytest

from transformer.reporting.measurements import expectation, next_steps

SIZES = ["text,direction,pairs,bleu,chrf,minutes"] + [
    f"{text},de-en,{pairs},{bleu},40.0,5"
    for text, pairs, bleu in [("captions", 2000, 20.0), ("captions", 20000, 33.0), ("messages", 2000, 8.0)]
]
GAINS = ["knob,off,means,options,text,direction,pairs,seeds,before,after"] + [
    f"dropout,0.1,More dropout,-S dropout=0.3,captions,de-en,{pairs},3,20.0,{after}"
    for pairs, after in [(2000, 21.5), (20000, 20.1)]
]


OFF = {"dropout": 0.1, "max_steps": 300}


@pytest.fixture
def recipes(tmp_path) -> Path:
    for name, lines in (("sizes.csv", SIZES), ("gains.csv", GAINS)):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


def test_recipe_cites_what_the_nearest_size_gave(recipes):
    assert "What 2,000 pairs gave here" in expectation(recipes, 5000)
    assert "What 20,000 pairs gave here" in expectation(recipes, 7000)  # nearer by its ratio
    assert "captions de-en, BLEU 33.0, chrF 40.0, in 5 minutes" in expectation(recipes, 10**7)


def test_the_report_advises_more_text_and_the_knobs_that_helped(recipes):
    more, knob = next_steps(recipes, OFF, 3000, {})
    assert more == "More pairs: captions de-en had BLEU 20.0 with 2,000 pairs and 33.0 with 20,000."
    assert knob.startswith("More dropout: +1.5 BLEU with 2,000 pairs of captions de-en. Type: dvc exp run -S dropout")


def test_a_knob_that_is_set_or_did_not_help_is_not_advised(recipes):
    assert len(next_steps(recipes, {**OFF, "dropout": 0.3}, 3000, {})) == 1
    assert next_steps(recipes, OFF, 30000, {}) == []


def test_a_training_that_was_still_learning_goes_on_first(recipes):
    first, *_ = next_steps(recipes, OFF, 3000, {"best_step": 300})
    assert first.startswith(
        "More updates: the loss on valid still fell at the last one. Type: dvc exp run -S max_steps=600"
    )
    first, *_ = next_steps(recipes, OFF, 3000, {"best_step": 300, "best_valid_bleu": 30.0})
    assert first.startswith("More updates: BLEU on valid still rose at the last one.")
    assert not next_steps(recipes, OFF, 3000, {"best_step": 200})[0].startswith("More updates")
