"""Label smoothing follows section 5.4, the learning rate equation 3."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.training.chunked_loss import log_at_targets
from transformer.training.loss import cross_entropy, smoothed_cross_entropy, smoothed_loss
from transformer.training.optimiser import learning_rate


def by_definition(states, weight, targets, smoothing):
    """The loss as loss.py defines it, with all scores at once."""
    return smoothed_loss(states @ weight.T, targets, smoothing)


def test_the_smoothed_targets_are_those_of_section_5_4():
    logs = torch.tensor([[0.1, 0.2, 0.3, 0.4]], dtype=torch.float64).log()  # padding, other, target, other
    expected = -(0.9 * math.log(0.3) + 0.05 * (math.log(0.2) + math.log(0.4)))
    assert smoothed_loss(logs, torch.tensor([2]), 0.1).item() == pytest.approx(expected, rel=1e-12)


@given(st.integers(3, 30), st.sampled_from([1, 5, 8, 1_027]), st.sampled_from([0.0, 0.1, 0.4]), st.integers(0, 99))
@settings(deadline=None, max_examples=60)
def test_smoothed_loss_and_gradients_equal_the_definition(vocabulary, tokens, smoothing, seed):
    """Also of 1,027 tokens, which are three chunks."""
    generator = torch.Generator().manual_seed(seed)
    states, weight = (
        torch.randn(n, 5, dtype=torch.float64, generator=generator).requires_grad_() for n in (tokens, vocabulary)
    )
    targets = torch.randint(1, vocabulary, (tokens,), generator=generator)
    ours, theirs = (f(states, weight, targets, smoothing) for f in (smoothed_cross_entropy, by_definition))
    torch.testing.assert_close(ours, theirs)
    for mine, other in zip(*(torch.autograd.grad(3 * loss, (states, weight)) for loss in (ours, theirs)), strict=True):
        torch.testing.assert_close(mine, other)
    torch.testing.assert_close(cross_entropy(states, weight, targets), by_definition(states, weight, targets, 0.0))


@given(st.floats(0, 1e5), st.sampled_from([torch.float32, torch.bfloat16]), st.sampled_from([0.0, 0.1]))
@settings(deadline=None, max_examples=30)
def test_the_loss_of_a_diverging_training_is_the_true_one(size, precision, smoothing):
    """Below log P = -87 a probability is 0 in float32; its logarithm is not."""
    states, weight = torch.tensor([[size, 0.0]]).to(precision), torch.tensor([[0.0, 0], [1, 0], [-1, 0], [0, 1]])
    for target in (1, 2, 3):
        ours = smoothed_cross_entropy(states, weight, torch.tensor([target]), smoothing)
        exact = by_definition(states.double(), weight.double(), torch.tensor([target]), smoothing)
        assert float(ours) == pytest.approx(float(exact), rel=1e-5 if precision == torch.float32 else 2e-2, abs=1e-2)
        assert float(ours) >= 0


def test_a_target_far_below_two_equal_largest_scores_has_its_loss():
    """Its probability underflows, and the largest one is a half."""
    scores = torch.tensor([[900.0, 900.0, -900.0, 3.0], [1.0, 900.0, 0.0, 900.0]], dtype=torch.float64)
    logs = log_at_targets(scores, scores.softmax(1), torch.tensor([2, 0]), torch.float64)
    torch.testing.assert_close(logs, scores.log_softmax(1)[[0, 1], [2, 0]], rtol=1e-12, atol=0)


@pytest.mark.parametrize("offset", [0, 1_000, 10_000])
def test_the_loss_of_bfloat16_states_is_near_the_exact_one(offset):
    """offset: what the scores of a token have in common."""
    torch.manual_seed(0)
    states, weight, targets = torch.randn(64, 32), torch.randn(50, 32), torch.randint(1, 50, (64,))
    states[:, 0], weight[:, 0] = 16, offset / 16
    rounded, exact = (smoothed_cross_entropy(x, weight, targets, 0.1).item() for x in (states.bfloat16(), states))
    assert rounded == pytest.approx(exact, rel=1e-2)


def test_label_smoothing_refuses_a_vocabulary_of_two_subwords():
    with pytest.raises(ValueError, match="at least 3 subwords, got 2"):
        smoothed_cross_entropy(torch.zeros(1, 4), torch.zeros(2, 4), torch.tensor([1]), 0.1)


@given(st.integers(1, 10**6), st.integers(1, 10**5), st.sampled_from([128, 512, 1024]))
def test_the_rate_is_equation_3_and_peaks_at_warmup(step, warmup, d_model):
    rate = learning_rate(step, d_model, warmup)
    assert rate == d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
    assert rate <= learning_rate(warmup, d_model, warmup)
    assert learning_rate(warmup, d_model, warmup, 2.0) == pytest.approx(2 / math.sqrt(d_model * warmup))


def test_update_zero_has_no_learning_rate():
    with pytest.raises(ValueError, match="step=0"):
        learning_rate(0, 512, 4000)
