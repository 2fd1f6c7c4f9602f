"""What makes the model faster on a processor equals the plain formula, in its values and in its gradients."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.model.attention import Attention, attention, causal_bias, split_heads
from transformer.model.cpu import FUSED_ABOVE, Linear, add_dropout, dropout, product, relu_dropout, scaled_softmax

sizes = st.integers(1, 5)


def assert_equal(fast, plain, *inputs: torch.Tensor) -> None:
    """Compare two functions of the inputs, each started with the same random numbers: values, and gradients."""
    results = []
    for function in (fast, plain):
        torch.manual_seed(5)
        value = function(*inputs)
        slope = torch.randn(value.shape, dtype=value.dtype, generator=torch.Generator().manual_seed(1))
        results.append((value, torch.autograd.grad(value, inputs, slope)))
    torch.testing.assert_close(*results)


def random(*shape: int) -> torch.Tensor:
    """Random numbers in float64 that need a gradient."""
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


@given(sizes, sizes, sizes, st.lists(sizes, min_size=1, max_size=3))
@settings(deadline=None, max_examples=20)
def test_heads_are_parts_of_the_width(sentences, length, heads, key_sizes):
    widths = [heads * size for size in key_sizes]
    for number in range(len(widths)):
        assert_equal(
            lambda x, number=number: split_heads(x, widths, heads)[number],
            lambda x, number=number: x.split(widths, -1)[number].unflatten(-1, (heads, -1)).transpose(1, 2),
            random(sentences, length, sum(widths)),
        )


@given(sizes, sizes, st.floats(0.01, 10), st.booleans())
@settings(deadline=None, max_examples=20)
def test_the_scaled_softmax_is_torchs(rows, columns, scale, causal):
    bias = causal_bias(columns, torch.float64, torch.device("cpu"))[-rows:] if causal and rows <= columns else None
    plain = partial(lambda scores, bias: (scale * scores + (0 if bias is None else bias)).softmax(-1), bias=bias)
    assert_equal(lambda scores: scaled_softmax(scores, scale, bias), plain, random(2, rows, columns))
    assert_equal(
        lambda scores: scaled_softmax(1e4 * scores, 1.0, None), lambda scores: (1e4 * scores).softmax(-1), random(2, 3)
    )


@given(sizes, sizes, sizes, st.booleans())
@settings(deadline=None, max_examples=20)
def test_a_product_is_that_of_torch(rows, columns, length, with_bias):
    x, weight, bias = torch.randn(length, columns), torch.randn(rows, columns), torch.randn(rows) if with_bias else None
    expected = F.linear(x, weight, bias)
    with torch.no_grad():  # oneDNN computes without gradients only
        torch.testing.assert_close(product(x, weight, bias), expected)
    linear = Linear(columns, rows)
    torch.testing.assert_close(linear(x, slice(0, 1)), linear(x)[:, :1])


@pytest.mark.parametrize("key_size", [0, 3])
@pytest.mark.parametrize("length", [5, FUSED_ABOVE + 1])
def test_attention_is_the_same_in_training_and_evaluation(length, key_size):
    """Above FUSED_ABOVE queries the evaluation is torch's fused kernel."""
    layer = Attention(d_model=8, heads=2, dropout=0.0, key_size=key_size).double()
    bias = causal_bias(length, torch.float64, torch.device("cpu"))
    assert_equal(
        lambda x, *weights: layer.train()(x, bias=bias),
        lambda x, *weights: layer.eval()(x, bias=bias),
        random(2, length, 8),
        *layer.parameters(),
    )


@pytest.mark.parametrize("rate", [0.0001, 0.1, 0.3, 0.9])
def test_dropout_zeroes_its_share_and_keeps_the_mean(rate):
    torch.manual_seed(1)
    x = dropout(torch.ones(1_000_003), rate)
    dropped = (x == 0).float().mean().item()
    assert dropped == pytest.approx(rate, abs=5 * math.sqrt(rate * (1 - rate) / len(x)) + 1 / 65536)
    assert x.max().item() == pytest.approx(1 / (1 - rate), rel=2e-4)
    assert x.mean().item() == pytest.approx(1, abs=5 * math.sqrt(rate / (1 - rate) / len(x)))


def test_the_gradient_of_dropout_is_its_mask_and_scale():
    x, slope = random(3, 7), random(3, 7)
    y = dropout(x, 0.4)
    (gradient,) = torch.autograd.grad(y, x, slope)
    assert 0 < y.count_nonzero() < y.numel()
    torch.testing.assert_close(gradient, slope * (y != 0) / 0.6, rtol=2e-5, atol=0)


@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_dropout_joined_with_a_relu_or_a_sum_is_dropout(rate):
    assert_equal(lambda x: relu_dropout(x, rate), lambda x: dropout(x.relu(), rate), random(3, 7))
    assert_equal(lambda x, y: add_dropout(x, y, rate), lambda x, y: x + dropout(y, rate), random(3, 7), random(3, 7))


def test_outside_training_nothing_is_dropped():
    x, y = random(3, 7), random(3, 7)
    assert torch.equal(dropout(x, 0.4, training=False), x)
    assert torch.equal(relu_dropout(x, 0.4, training=False), x.relu())
    assert torch.equal(add_dropout(x, y, 0.4, training=False), x + y)
    for length in (2, FUSED_ABOVE + 1):
        heads = random(1, 1, length, 3)
        without = attention(heads, heads, heads, None, rate=0.0, training=False)
        assert torch.equal(attention(heads, heads, heads, None, rate=0.4, training=False), without)
