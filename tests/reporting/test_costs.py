"""The FLOP of a training are 6 for each token and each weight that multiplies it."""

import pytest
import torch
from support.tiny import SIZES, tiny_model
from torch.utils.flop_counter import FlopCounterMode

from transformer.reporting.costs import costs, training_flop


def counted(source: int, target: int, **sizes) -> float:
    """The FLOP of products of one forward and backward pass over a pair, as torch counts them. sizes: of the model."""
    model = tiny_model(**sizes)
    ids = torch.randint(4, SIZES["vocabulary"], (1, max(source, target)))
    with FlopCounterMode(display=False) as counter:
        model.logits(model(ids[:, :source], ids[:, :target])).sum().backward()
    return counter.get_total_flops()


@pytest.mark.parametrize("sizes", [{}, {"key_size": 3}, {"encoder_layers": 4, "decoder_layers": 1, "key_size": 12}])
def test_the_formula_is_what_torch_counts_for_weights(sizes):
    source, target = 5, 7
    encoder, decoder = sizes.get("encoder_layers", 2), sizes.get("decoder_layers", 2)
    # torch counts the masked half of the target too
    attended = encoder * source**2 + decoder * (target**2 + target * source)
    products = 6 * (SIZES["heads"] * sizes.get("key_size", 8) + SIZES["d_model"]) * attended
    expected = training_flop(SIZES | sizes, SIZES["vocabulary"], source, target)
    assert counted(source, target, **sizes) - products == pytest.approx(expected, rel=0.001)


def test_source_tokens_follow_from_the_ratio_of_train():
    sides = {"source": {"subwords": 300, "sentences": 60}, "target": {"subwords": 180, "sentences": 60}}
    subwords = {"train": sides}
    result = costs(SIZES, {"steps": 5, "target_tokens": 1000}, subwords, 23)
    assert result["source tokens, about"] == 1500
    assert result["FLOP, about"] == training_flop(SIZES, 23, 1500, 1000)
    assert costs(SIZES, {"steps": 5}, subwords, 23) == {}
