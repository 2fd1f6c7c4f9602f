"""Beam search is what decoding/beam_search.py defines. Tested in float64, so that rounding decides no near-tie."""

import itertools
import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.tiny import make_ends_likely, tiny_model

from transformer.decoding.batches import batches
from transformer.decoding.beam_search import beam_search, largest_per_row, translate_ids
from transformer.decoding.config import SearchConfig
from transformer.decoding.forced_decoding import score_ids
from transformer.decoding.hypothesis import length_divisor
from transformer.text.vocabulary import BOS, EOS, PAD

SENTENCES = [[5, 6, 7, 8], [9], [10, 11], [12, 13, 14, 15, 16, 17, 18], [5, 5, 5]]


def log_probability(model, source: list[int], target: list[int], ended: bool = True) -> float:
    """log P(target, </s> if ended | source) by forced decoding, without any cache."""
    states = model(torch.tensor([[*source, EOS]]), torch.tensor([[BOS, *target]]))
    steps = model.logits(states)[0].log_softmax(-1)
    return sum(steps[place, subword].item() for place, subword in enumerate([*target, EOS][: len(target) + ended]))


def search(model, sources, beam_size=4, length_penalty=0.6, extra_length=6, **more):
    """translate_ids with a model or a list of models."""
    models = model if isinstance(model, list) else [model]
    return translate_ids(models, sources, SearchConfig(beam_size, length_penalty, extra_length), **more)


def model64(seed: int = 7, **changes):
    """A random model in float64 with clear preferences, so that different beam sizes give different translations."""
    model = tiny_model(**changes).double()
    torch.manual_seed(seed)  # after tiny_model, which seeds torch itself
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.3 * torch.randn_like(weight)
    make_ends_likely(model, pull=seed % 4)
    return model


@given(
    st.integers(0, 10**6),
    st.sampled_from(["pre", "post"]),
    st.sampled_from(["sinusoidal", "learned"]),
    st.sampled_from([0, 3, 11]),
    st.integers(0, 3),
)
@settings(deadline=None, max_examples=20)
def test_every_score_equals_that_of_forced_decoding(seed, norm, positions, key_size, decoder_layers):
    model = model64(seed, norm=norm, positions=positions, key_size=key_size, decoder_layers=decoder_layers)
    for source, hypotheses in zip(SENTENCES, search(model, SENTENCES), strict=True):
        for found in hypotheses:
            ended = len(found.ids) < len(source) + 6  # before its limit; at the limit it may have no </s>
            wanted = log_probability(model, source, list(found.ids), ended)
            divisor = length_divisor(len(found.ids) + ended, 0.6)
            assert found.log_probability == pytest.approx(wanted, abs=1e-9)
            assert found.score == pytest.approx(wanted / divisor, abs=1e-9)


def test_random_models_end_some_translations_and_not_others():
    """The other tests need both kinds: translations that end before their limit, and translations that reach it."""
    ended = [
        len(found.ids) < len(source) + 6
        for seed in range(8)
        for source, hypotheses in zip(SENTENCES, search(model64(seed), SENTENCES), strict=True)
        for found in hypotheses
    ]
    assert 0.2 < sum(ended) / len(ended) < 0.8


@given(st.integers(0, 10**6))
@settings(deadline=None, max_examples=15)
def test_beam_size_1_is_greedy_search(seed):
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
@example(1, 4)  # here some settled sentences stay in the batch for several steps
@settings(deadline=None, max_examples=8)
def test_a_batch_of_mixed_lengths_gives_the_translations_of_single_sentences(seed, beam_size):
    model = model64(seed)
    # enough sentences that some are settled before an eighth of the batch is, and so stay in the batch
    sentences = [*SENTENCES, *([4 + place, 5 + place, 6] for place in range(15))]
    together = search(model, sentences, beam_size)
    alone = [search(model, [sentence], beam_size)[0] for sentence in sentences]
    small = search(model, sentences, beam_size, batch_tokens=1)
    assert [[h.ids for h in found] for found in together] == [[h.ids for h in found] for found in alone]
    assert [[h.ids for h in found] for found in together] == [[h.ids for h in found] for found in small]


def check_against_every_translation(seed: int, length_penalty: float) -> None:
    """Compare a search whose beam holds all translations with the scores of all translations.

    The model has 2 subwords besides the specials, and a translation at most 3 subwords with </s>.
    """
    model = model64(seed, vocabulary=6)
    source = [4, 5]
    inner = [1, 4, 5]  # <unk> and the two subwords
    targets = [list(ids) for length in range(3) for ids in itertools.product(inner, repeat=length)]
    scores = {
        tuple(ids): log_probability(model, source, ids) / length_divisor(len(ids) + 1, length_penalty)
        for ids in targets
    }
    # before the last subword there are at most 9 beams, which 4 subwords continue: all are candidates
    found = search(model, [source], beam_size=36, length_penalty=length_penalty, extra_length=1)[0]
    complete = [hypothesis for hypothesis in found if len(hypothesis.ids) < len(source) + 1]
    assert complete == found[: len(complete)]
    assert [hypothesis.ids for hypothesis in complete] == sorted(scores, key=scores.__getitem__, reverse=True)
    for hypothesis in complete:
        assert hypothesis.score == pytest.approx(scores[hypothesis.ids], abs=1e-9)


@given(st.integers(0, 10**6), st.floats(0, 2))
@settings(deadline=None, max_examples=10)
def test_a_beam_that_holds_all_translations_finds_the_best_one(seed, length_penalty):
    check_against_every_translation(seed, length_penalty)


@pytest.mark.full
@pytest.mark.parametrize("hundred", range(10))
def test_a_beam_that_holds_all_translations_finds_the_best_one_for_1000_models(hundred):
    for seed in range(100 * hundred, 100 * hundred + 100):
        check_against_every_translation(seed, length_penalty=seed % 5 / 2)


@given(st.integers(0, 10**6), st.integers(1, 4))
@settings(deadline=None, max_examples=10)
def test_a_larger_length_limit_does_not_change_a_search_that_ended_before_it(seed, beam_size):
    model = model64(seed)
    for source, short, long in zip(
        SENTENCES,
        search(model, SENTENCES, beam_size),
        search(model, SENTENCES, beam_size, extra_length=20),
        strict=True,
    ):
        if len(short) == beam_size and all(len(found.ids) < len(source) + 6 for found in short):
            assert [found.ids for found in short] == [found.ids for found in long]
            # Sums over another number of cached positions may be rounded differently.
            assert [found.score for found in short] == pytest.approx([found.score for found in long], rel=1e-12)


@pytest.mark.parametrize("order", [1, -1])
def test_the_models_of_an_ensemble_may_have_different_precisions(order):
    models, exact = [model64(3), model64(4).float()][::order], [model64(3), model64(4)]
    for found, wanted in zip(search(models, SENTENCES), search(exact, SENTENCES), strict=True):
        assert found[0].ids == wanted[0].ids
        assert found[0].log_probability == pytest.approx(wanted[0].log_probability, abs=1e-4)
    targets = [[6, 7]] * len(SENTENCES)
    for found, wanted in zip(*(score_ids(these, SENTENCES, targets) for these in (models, exact)), strict=True):
        assert found == pytest.approx(wanted, abs=1e-4)


@given(st.integers(0, 10**6))
@settings(deadline=None, max_examples=10)
def test_an_ensemble_averages_the_probabilities_of_its_models(seed):
    models = [model64(seed), model64(seed + 1)]
    for source, found in zip(SENTENCES, search(models, SENTENCES), strict=True):
        for hypothesis in found:
            target, total = list(hypothesis.ids), 0.0
            ended = len(target) < len(source) + 6
            for place, subword in enumerate([*target, EOS][: len(target) + ended]):
                shares = [
                    model.logits(model(torch.tensor([[*source, EOS]]), torch.tensor([[BOS, *target]])))[0, place]
                    .softmax(-1)[subword]
                    .item()
                    for model in models
                ]
                total += math.log(sum(shares) / 2)
            assert hypothesis.log_probability == pytest.approx(total, abs=1e-9)


def test_an_ensemble_of_equal_models_translates_like_one_of_them():
    model = model64()
    one, three = search(model, SENTENCES), search([model] * 3, SENTENCES)
    assert [[h.ids for h in found] for found in one] == [[h.ids for h in found] for found in three]


def test_no_translation_ends_before_min_length():
    source = torch.tensor([[5, 6, EOS], [9, EOS, PAD]])
    found = beam_search([model64()], source, torch.tensor([9, 9]), beam_size=3, length_penalty=0.6, min_length=9)
    assert {len(hypothesis.ids) for hypotheses in found for hypothesis in hypotheses} <= {8, 9}


@given(st.integers(0, 10**6), st.integers(2, 5), st.integers(1, 40))
@settings(deadline=None, max_examples=15)
def test_as_many_alternatives_are_found_as_were_asked_for(seed, extra_length, beam_size):
    """Also those that reach the length limit before </s>."""
    for found in search(model64(seed), SENTENCES, beam_size, extra_length=extra_length):
        assert len(found) == beam_size
        assert len({hypothesis.ids for hypothesis in found}) == beam_size


def test_batching_sentences_copies_the_number_of_each_once(monkeypatch):
    copied = 0

    class Numbers(list):
        def __getitem__(self, place):
            nonlocal copied
            found = super().__getitem__(place)
            if isinstance(place, slice):
                copied += len(found)
                return Numbers(found)
            return found

    monkeypatch.setattr(
        "transformer.decoding.beam_search.sorted", lambda *a, **k: Numbers(sorted(*a, **k)), raising=False
    )
    sources = [range(number % 50) for number in range(20_000)]
    rows = [row for part in batches(sources, 400) for row in part]
    assert sorted(rows) == list(range(len(sources)))
    assert copied <= len(sources)


@given(st.integers(0, 10**6), st.integers(0, 5), st.integers(1, 4))
@settings(deadline=None, max_examples=15)
def test_every_source_has_hypotheses_and_none_is_longer_than_the_limit(seed, extra_length, beam_size):
    found = search(model64(seed), SENTENCES, beam_size, extra_length=extra_length)
    for source, hypotheses in zip(SENTENCES, found, strict=True):
        limit = len(source) + extra_length
        finished = [h.score for h in hypotheses if len(h.ids) < limit]  # those after them were cut off at the limit
        assert [len(h.ids) < limit for h in hypotheses] == sorted(
            (len(h.ids) < limit for h in hypotheses), reverse=True
        )
        for scores in (finished, [h.score for h in hypotheses[len(finished) :]]):
            assert scores == sorted(scores, reverse=True)
        for hypothesis in hypotheses:
            assert len(hypothesis.ids) <= len(source) + extra_length
            assert not {PAD, BOS, EOS} & set(hypothesis.ids)


@given(st.lists(st.integers(0, 4), min_size=4, max_size=12), st.integers(1, 4))
def test_of_equal_scores_the_earlier_beam_comes_first_then_the_lower_id(scores, count):
    _, places = largest_per_row(torch.tensor([scores], dtype=torch.float64), count)
    assert places[0].tolist() == sorted(range(len(scores)), key=lambda place: (-scores[place], place))[:count]


def test_the_length_penalty_is_equation_14_of_wu_et_al():
    assert length_divisor(1, 0.6) == 1
    assert length_divisor(19, 0.6) == pytest.approx(4**0.6)
    assert length_divisor(7, 0) == 1
