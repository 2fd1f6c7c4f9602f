"""The stage compare_engines fails for an export that translates differently or worse."""

import pytest

from pipeline.compare_engines import difference

GOOD = {
    "float32_identical_beam_1": 99.6,
    "float32_identical_beam_4": 99.1,
    "torch_bleu_beam_1": 40.0,
    "torch_bleu_beam_4": 41.0,
    "int8_bleu_beam_1": 39.6,
    "int8_bleu_beam_4": 40.6,
}


@pytest.mark.parametrize(
    ("worse", "message"),
    [
        ({"float32_identical_beam_1": 99.4}, "beam 1, 99.40% of the translations of valid"),
        ({"float32_identical_beam_4": 98.9}, "and 99.0% are required"),
        ({"int8_bleu_beam_4": 40.4}, "int8 loses 0.60 BLEU"),
    ],
)
def test_a_worse_export_is_reported_with_its_numbers(worse, message):
    assert difference(GOOD, 1000) == ""
    assert message in difference(GOOD | worse, 1000)


def test_near_ties_of_an_untrained_model_are_no_differences():
    worse = {"torch_bleu_beam_1": 4.9, "torch_bleu_beam_4": 4.9, "float32_identical_beam_1": 10.0}
    assert difference(GOOD | worse, 1000) == ""


def test_one_different_sentence_is_always_allowed():
    assert difference(GOOD | {"float32_identical_beam_1": 100 * 11 / 12}, 12) == ""
