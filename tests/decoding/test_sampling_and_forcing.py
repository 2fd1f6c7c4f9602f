"""Sampling draws from the distribution of the model, and forced decoding scores a translation as the model does."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_search import SENTENCES, log_probability, model64, search

from transformer.decoding.attention_maps import attention_maps
from transformer.decoding.config import SamplingConfig
from transformer.decoding.forced_decoding import score_ids
from transformer.decoding.likelihood import SCORES_AT_ONCE
from transformer.decoding.sampling import draw_subwords, sample_ids
from transformer.text.vocabulary import BOS, EOS, PAD


@given(st.lists(st.lists(st.integers(4, 22), max_size=9), min_size=1, max_size=6), st.integers(1, 60))
@settings(deadline=None, max_examples=15)
def test_forced_decoding_scores_as_the_model_in_any_batch(targets, batch_tokens):
    model, sources = model64(), (SENTENCES * 2)[: len(targets)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SCORES_AT_ONCE, "cpu", batch_tokens * 23)  # the vocabulary is scored in chunks of positions
        scores = score_ids([model], sources, targets, batch_tokens=batch_tokens)
    for source, target, steps in zip(sources, targets, scores, strict=True):
        assert len(steps) == len(target) + 1
        assert sum(steps) == pytest.approx(log_probability(model, source, target), abs=1e-9)


@given(st.integers(0, 10**6), st.floats(0.3, 2), st.integers(0, 5), st.floats(0.2, 1))
@settings(deadline=None, max_examples=6)
def test_a_sample_depends_only_on_the_seed_and_the_sentence(seed, temperature, top_k, top_p):
    config = SamplingConfig(2, seed, temperature, top_k, top_p, extra_length=6)
    model = model64()
    together = sample_ids([model], SENTENCES, config)
    alone = [sample_ids([model], [source], config)[0] for source in SENTENCES]
    for hypotheses, expected in zip(together, alone, strict=True):
        assert [hypothesis.ids for hypothesis in hypotheses] == [hypothesis.ids for hypothesis in expected]


def test_decoding_is_without_dropout_and_leaves_the_mode_as_it_was():
    rates = dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), 0.5)
    model, plain = model64(**rates).train(), model64()
    model.encoder[0].eval()
    modes = [part.training for part in model.modules()]
    for decode in (
        lambda model: search(model, iter(SENTENCES)),
        lambda model: sample_ids([model], iter(SENTENCES), SamplingConfig(extra_length=6)),
        lambda model: score_ids([model], iter(SENTENCES), iter(SENTENCES)),
        lambda model: attention_maps(model, SENTENCES[0], SENTENCES[1]).cross.tolist(),
    ):
        assert decode(model) == decode(plain)
        assert [part.training for part in model.modules()] == modes


def test_the_samples_of_a_sentence_and_of_two_sentences_differ():
    model = model64()
    for weight in model.parameters():
        weight.detach().zero_()  # all subwords are equally likely, so random numbers alone decide
    (first, second), (third, _) = sample_ids([model], [[5, 6], [6, 5]], SamplingConfig(2, extra_length=9))
    assert len({first.ids, second.ids, third.ids}) == 3


@given(st.integers(0, 10**6), st.sampled_from([{"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-6}]))
@settings(deadline=None, max_examples=8)
def test_a_sample_of_the_likeliest_subwords_is_greedy(seed, options):
    model = model64(seed)
    greedy = [best.ids for (best,) in search(model, SENTENCES, beam_size=1)]
    samples = sample_ids([model], SENTENCES, SamplingConfig(extra_length=6, **options))
    assert [sample.ids for (sample,) in samples] == greedy


@given(st.integers(0, 10**6))
@settings(deadline=None, max_examples=6)
def test_a_sample_has_the_log_probability_of_the_model(seed):
    model = model64(seed)
    samples = sample_ids([model], SENTENCES, SamplingConfig(temperature=2, extra_length=6))
    for source, (sample,) in zip(SENTENCES, samples, strict=True):
        assert not {PAD, BOS, EOS} & set(sample.ids)
        assert len(sample.ids) <= len(source) + 6
        if len(sample.ids) < len(source) + 6:
            assert sample.log_probability == pytest.approx(log_probability(model, source, list(sample.ids)), abs=1e-9)


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
    halves = torch.zeros(1, 1, 4, dtype=torch.float64)  # two subwords reach 0.5
    assert draw_subwords(halves, torch.tensor([[0.9]]).double(), SamplingConfig(top_p=0.5)).item() == 1
    squares = [0.25, 0.09, 0.0225, 0.0025]
    assert counts(temperature=0.5) == pytest.approx([1000 * share / sum(squares) for share in squares], abs=1)
