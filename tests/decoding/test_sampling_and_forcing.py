"""Sampling and forced decoding."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_search import SENTENCES, log_probability, model64, search
from torch.utils._python_dispatch import TorchDispatchMode

from transformer.decoding.config import SamplingConfig
from transformer.decoding.forced_decoding import score_ids
from transformer.decoding.likelihood import SCORES_AT_ONCE
from transformer.decoding.sampling import draw_subwords, sample_ids
from transformer.text.vocabulary import BOS, EOS, PAD


@given(st.integers(0, 10**6))
@settings(deadline=None, max_examples=10)
def test_forced_decoding_gives_a_translation_the_log_probability_of_the_search(seed):
    model = model64(seed)
    for source, found in zip(SENTENCES, search(model, SENTENCES), strict=True):
        ended = [hypothesis for hypothesis in found if len(hypothesis.ids) < len(source) + 6]
        scores = score_ids([model], [source] * len(ended), [list(hypothesis.ids) for hypothesis in ended])
        for hypothesis, steps in zip(ended, scores, strict=True):
            assert len(steps) == len(hypothesis.ids) + 1
            assert sum(steps) == pytest.approx(hypothesis.log_probability, abs=1e-9)


@given(st.lists(st.lists(st.integers(4, 22), max_size=9), min_size=1, max_size=6), st.integers(1, 60))
@settings(deadline=None, max_examples=20)
def test_scores_do_not_depend_on_the_batch(targets, batch_tokens):
    model, sources = model64(), (SENTENCES * 2)[: len(targets)]
    together = score_ids([model], sources, targets, batch_tokens=batch_tokens)
    for source, target, steps in zip(sources, targets, together, strict=True):
        assert sum(steps) == pytest.approx(log_probability(model, source, target), abs=1e-9)


@given(st.integers(0, 10**6), st.floats(0.3, 2), st.integers(0, 5), st.floats(0.2, 1))
@settings(deadline=None, max_examples=10)
def test_a_sample_depends_only_on_the_seed_and_the_sentence(seed, temperature, top_k, top_p):
    options = {
        "samples": 2,
        "seed": seed,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "extra_length": 6,
    }
    model = model64()
    together = sample_ids([model], SENTENCES, SamplingConfig(**options))
    alone = [sample_ids([model], [source], SamplingConfig(**options))[0] for source in reversed(SENTENCES)][::-1]
    assert [[h.ids for h in found] for found in together] == [[h.ids for h in found] for found in alone]


def test_different_seeds_draw_different_samples():
    drawn = {
        sample_ids([model64()], SENTENCES, SamplingConfig(seed=seed, extra_length=6))[3][0].ids for seed in range(8)
    }
    assert len(drawn) > 1


@given(st.integers(0, 10**6))
@settings(deadline=None, max_examples=10)
def test_a_sample_from_the_likeliest_subword_is_the_greedy_translation(seed):
    model = model64(seed)
    greedy = [found[0].ids for found in search(model, SENTENCES, beam_size=1)]
    for options in ({"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-6}):
        assert [
            found[0].ids for found in sample_ids([model], SENTENCES, SamplingConfig(extra_length=6, **options))
        ] == greedy


@given(st.integers(0, 10**6))
@settings(deadline=None, max_examples=10)
def test_a_sample_has_its_log_probability_under_the_model_without_temperature(seed):
    model = model64(seed)
    for source, (found,) in zip(
        SENTENCES, sample_ids([model], SENTENCES, SamplingConfig(temperature=2, extra_length=6)), strict=True
    ):
        assert not {PAD, BOS, EOS} & set(found.ids)
        assert len(found.ids) <= len(source) + 6
        if len(found.ids) < len(source) + 6:
            assert found.log_probability == pytest.approx(log_probability(model, source, list(found.ids)), abs=1e-9)


def test_subwords_are_drawn_in_proportion_to_their_probability():
    """1000 evenly spaced random numbers draw each subword 1000 x its probability times."""
    steps = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64).log()
    chances = ((torch.arange(1000, dtype=torch.float64) + 0.5) / 1000)[None]

    def counts(**filters) -> list[int]:
        drawn = draw_subwords(steps.expand(1, 1000, 4), chances, SamplingConfig(**filters))
        return torch.bincount(drawn[0], minlength=4).tolist()

    assert counts() == [500, 300, 150, 50]
    assert counts(top_k=2) == [625, 375, 0, 0]
    assert counts(top_p=0.79) == [625, 375, 0, 0]
    assert counts(top_p=0.81) == pytest.approx([526, 316, 158, 0], abs=1)
    squares = [0.25, 0.09, 0.0225, 0.0025]
    assert counts(temperature=0.5) == pytest.approx([1000 * share / sum(squares) for share in squares], abs=1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0.0),
        ("temperature", math.inf),
        ("temperature", math.nan),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_p", math.nan),
        ("samples", 0),
        ("samples", 10**6),
        ("seed", -1),
    ],
)
def test_a_sampling_setting_out_of_range_is_an_error_with_its_name(name, value):
    with pytest.raises(ValueError, match=name):
        SamplingConfig(**{name: value})


def test_forced_decoding_holds_the_scores_of_few_subwords_at_a_time(monkeypatch):
    monkeypatch.setitem(SCORES_AT_ONCE, "cpu", 50)  # 2 positions of a vocabulary of 23
    wide: list[tuple] = []

    class Shapes(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            result = function(*arguments, **(options or {}))
            if isinstance(result, torch.Tensor) and result.shape[-1:] == (23,):
                wide.append(tuple(result.shape))
            return result

    model = model64()
    with Shapes():
        found = score_ids([model], SENTENCES, SENTENCES)
    assert wide
    assert max(math.prod(shape[:-1]) for shape in wide) == 2
    for source, steps in zip(SENTENCES, found, strict=True):
        assert sum(steps) == pytest.approx(log_probability(model, source, source), abs=1e-9)


def test_a_model_with_equal_logits_gives_each_subword_the_score_log_1_over_v():
    model = model64(tie_embeddings=False)
    with torch.no_grad():
        model.projection.weight.zero_()
    even = score_ids([model], [[5]], [[6, 7]])[0]
    assert even == pytest.approx([-math.log(23)] * 3)


def test_the_scores_held_at_a_time_take_at_most_64_megabytes_on_a_cpu():
    assert 4 * SCORES_AT_ONCE["cpu"] <= 64 << 20  # the scores of 8,192 tokens over 37,000 subwords take 1.2 GB
