"""The FLOP of a training are 6 for each token and each weight that multiplies it."""

import pytest
import torch
from support.tiny import SIZES, tiny_model
from torch.utils.flop_counter import FlopCounterMode

from transformer.reporting.costs import costs, training_flop


def counted(source: int, target: int) -> float:
    """The FLOP of products of one forward and backward pass over a pair, as torch counts them."""
    model = tiny_model()
    ids = torch.randint(4, SIZES["vocabulary"], (1, max(source, target)))
    with FlopCounterMode(display=False) as counter:
        model.logits(model(ids[:, :source], ids[:, :target])).sum().backward()
    return counter.get_total_flops()


def test_the_formula_is_what_torch_counts_without_the_products_of_queries_keys_and_values():
    source, target = 5, 7
    attended = source**2 + target**2 + target * source  # torch counts the masked half of the target too
    products = 6 * 2 * SIZES["layers"] * SIZES["d_model"] * attended
    wanted = training_flop(SIZES, SIZES["vocabulary"], source, target)
    assert counted(source, target) - products == pytest.approx(wanted, rel=0.001)


def test_source_tokens_follow_from_the_ratio_of_train_and_unknown_tokens_cost_nothing():
    sides = {"source": {"subwords": 300, "sentences": 60}, "target": {"subwords": 180, "sentences": 60}}
    subwords = {"train": sides}
    found = costs(SIZES, {"steps": 5, "target_tokens": 1000}, subwords, 23)
    assert found["source tokens, about"] == 1500
    assert found["FLOP, about"] == training_flop(SIZES, 23, 1500, 1000)
    assert costs(SIZES, {"steps": 5}, subwords, 23) == {}
