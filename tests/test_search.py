"""The search is the one that transformer/decoding.py defines, in float64, where near-ties do not flip."""

import itertools

import pytest
import torch
from conftest import tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.decoding import largest, translate_ids
from transformer.hypothesis import length_divisor
from transformer.text import BOS, EOS, PAD

SENTENCES = [[5, 6, 7, 8], [9], [10, 11], [12, 13, 14, 15, 16, 17, 18], [5, 5, 5]]


def log_probability(model, source: list[int], target: list[int]) -> float:
    """log P(target, </s> | source) by forced decoding, without any cache."""
    states = model(torch.tensor([[*source, EOS]]), torch.tensor([[BOS, *target]]))
    steps = model.logits(states)[0].log_softmax(-1)
    return sum(steps[place, subword].item() for place, subword in enumerate([*target, EOS]))


def search(model, sources, beam_size=4, length_penalty=0.6, extra_length=6, **more):
    models = model if isinstance(model, list) else [model]
    return translate_ids(
        models, sources, beam_size=beam_size, length_penalty=length_penalty, extra_length=extra_length, **more
    )


def model64(seed: int = 7, **changes):
    """A random model whose choices are far from even, so that beams compete."""
    torch.manual_seed(seed)
    model = tiny_model(**changes).double()
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.3 * torch.randn_like(weight)
    return model


@given(st.integers(0, 10**6), st.sampled_from(["pre", "post"]), st.sampled_from(["sinusoidal", "learned"]))
@settings(deadline=None, max_examples=15)
def test_every_score_is_the_score_of_forced_decoding(seed, norm, positions):
    model = model64(seed, norm=norm, positions=positions)
    for source, hypotheses in zip(SENTENCES, search(model, SENTENCES), strict=True):
        limit = len(source) + 6
        for found in hypotheses:
            if len(found.ids) < limit:  # ended by itself
                wanted = log_probability(model, source, list(found.ids))
                assert found.log_probability == pytest.approx(wanted, abs=1e-9)
                assert found.score == pytest.approx(wanted / length_divisor(len(found.ids) + 1, 0.6), abs=1e-9)


@given(st.integers(0, 10**6))
@settings(deadline=None, max_examples=15)
def test_beam_1_is_greedy(seed):
    model = model64(seed)
    for source, (found,) in zip(SENTENCES, search(model, SENTENCES, beam_size=1), strict=True):
        target: list[int] = []
        while len(target) < len(source) + 6:
            logits = model.logits(model(torch.tensor([[*source, EOS]]), torch.tensor([[BOS, *target]])))[0, -1]
            logits[[PAD, BOS]] = -torch.inf
            if (subword := int(logits.argmax())) == EOS:
                break
            target.append(subword)
        assert list(found.ids) == target


@given(st.integers(0, 10**6), st.integers(1, 5))
@settings(deadline=None, max_examples=15)
def test_a_batch_of_mixed_lengths_equals_one_by_one(seed, beam_size):
    model = model64(seed)
    together = search(model, SENTENCES, beam_size)
    alone = [search(model, [sentence], beam_size)[0] for sentence in SENTENCES]
    small = search(model, SENTENCES, beam_size, batch_tokens=1)
    assert [[h.ids for h in found] for found in together] == [[h.ids for h in found] for found in alone]
    assert [[h.ids for h in found] for found in together] == [[h.ids for h in found] for found in small]


@given(st.integers(0, 10**6))
@settings(deadline=None, max_examples=10)
def test_a_beam_as_wide_as_the_space_finds_the_true_best(seed):
    """4 subwords besides the specials, at most 3 with </s>: every translation can be tried."""
    model = model64(seed, vocabulary=6)
    source = [4, 5]
    inner = [1, 4, 5]  # <unk> and the two subwords
    space = [list(ids) for length in range(3) for ids in itertools.product(inner, repeat=length)]
    scores = {tuple(ids): log_probability(model, source, ids) / length_divisor(len(ids) + 1, 0.6) for ids in space}
    found = search(model, [source], beam_size=27, extra_length=1)[0]
    assert found[0].ids == max(scores, key=scores.__getitem__)
    assert {hypothesis.ids for hypothesis in found} == set(scores)


@given(st.integers(0, 10**6), st.integers(0, 5), st.integers(1, 4))
@settings(deadline=None, max_examples=15)
def test_no_hypothesis_is_longer_than_the_limit_and_none_is_missing(seed, extra_length, beam_size):
    found = search(model64(seed), SENTENCES, beam_size, extra_length=extra_length)
    for source, hypotheses in zip(SENTENCES, found, strict=True):
        assert 1 <= len(hypotheses) <= beam_size
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
        for hypothesis in hypotheses:
            assert len(hypothesis.ids) <= len(source) + extra_length
            assert not {PAD, BOS, EOS} & set(hypothesis.ids)


@given(st.lists(st.integers(0, 4), min_size=4, max_size=12), st.integers(1, 4))
def test_equal_scores_go_to_the_earlier_beam_then_the_lower_id(scores, count):
    _, places = largest(torch.tensor([scores], dtype=torch.float64), count)
    assert places[0].tolist() == sorted(range(len(scores)), key=lambda place: (-scores[place], place))[:count]


def test_length_penalty_is_the_papers():
    assert length_divisor(1, 0.6) == 1
    assert length_divisor(19, 0.6) == pytest.approx(4**0.6)
    assert length_divisor(7, 0) == 1
