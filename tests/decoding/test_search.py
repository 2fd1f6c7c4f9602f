"""Beam search is what beam_search.py defines. Tested in float64, so that rounding decides no near-tie."""

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiny import make_ends_likely, tiny_model

from transformer.decoding.beam_search import beam_search, best_continuations, translate_ids
from transformer.decoding.config import SearchConfig
from transformer.decoding.forced_decoding import score_ids
from transformer.decoding.hypothesis import length_divisor
from transformer.decoding.largest import BLOCK, sorted_or_top
from transformer.decoding.likelihood import SCORES_AT_ONCE
from transformer.model.config import TransformerConfig
from transformer.model.transformer import Transformer
from transformer.text.vocabulary import BOS, EOS, PAD

SENTENCES = [[5, 6, 7, 8], [9], [10, 11], [12, 13, 14, 15, 16, 17, 18], [5, 5, 5]]


@torch.no_grad()
def log_probabilities(model, source: list[int], targets: Sequence[Sequence[int]]) -> torch.Tensor:
    """log P of each subword at each position of targets of one length, without any cache: (targets, T + 1, V).

    <pad> and <s> have probability 0.
    """
    sources = torch.tensor([[*source, EOS]]).expand(len(targets), -1)
    logits = model.logits(model(sources, torch.tensor([[BOS, *target] for target in targets])))
    logits[..., [PAD, BOS]] = -math.inf
    return logits.log_softmax(-1)


def log_probability(model, source: list[int], target: list[int]) -> float:
    """log P(target, </s> | source)."""
    steps = log_probabilities(model, source, [target])[0]
    return sum(steps[place, subword].item() for place, subword in enumerate([*target, EOS]))


def defined_search(logs: Callable, limit: int, beam_size: int, length_penalty: float) -> list:
    """The search of one sentence, step by step as the docstring of beam_search.py defines it: ids, score, log P.

    logs: beams -> the log-probabilities of the next subword of each.
    """
    beams, finished, best_ended = [((), 0.0)], [], False
    for _ in range(limit):
        steps = logs([ids for ids, _ in beams])
        candidates = sorted(
            (-(total + log), place, subword)
            for place, (_, total) in enumerate(beams)
            for subword, log in enumerate(steps[place])
        )[: 2 * beam_size]
        finished += [(beams[place][0], -cost) for cost, place, subword in candidates[:beam_size] if subword == EOS]
        continued = [(place, subword, -cost) for cost, place, subword in candidates if subword != EOS]
        beams = [((*beams[place][0], subword), total) for place, subword, total in continued[:beam_size]]
        best_ended |= candidates[0][2] == EOS
        if len(finished) >= beam_size and best_ended:
            break
    finished = sorted(finished, key=lambda pair: -pair[1])[:beam_size]
    hypotheses = []
    for pairs, ended in ((finished, 1), (beams, 0)):
        scored = [(ids, total / length_divisor(len(ids) + ended, length_penalty), total) for ids, total in pairs]
        hypotheses += sorted(scored, key=lambda hypothesis: -hypothesis[1])
    return hypotheses[:beam_size]


def check(found, expected) -> None:
    """The hypotheses of a sentence are those of `defined_search`."""
    assert [hypothesis.ids for hypothesis in found] == [ids for ids, _, _ in expected]
    scores = [(hypothesis.score, hypothesis.log_probability) for hypothesis in found]
    assert scores == [pytest.approx((score, total), abs=1e-9) for _, score, total in expected]


class Chains:
    """In place of CachedDecoder: log P of the next subword by the last one, from a table (B, V, W) of each sentence."""

    precision = torch.float64

    def __init__(self, tables: torch.Tensor):
        self.tables, self.position = tables, 0

    def step(self, ids: torch.Tensor) -> torch.Tensor:
        self.position += 1
        return self.tables.take_along_dim(ids.clamp(max=self.tables.shape[1] - 1)[:, :, None], 1)  # (B, N, W)

    def reorder(self, parents: torch.Tensor) -> None: ...

    def select(self, rows: torch.Tensor) -> None:
        self.tables = self.tables[rows]


@given(st.integers(0, 10**6), st.integers(1, 5), st.floats(0, 2), st.floats(1, 6), st.integers(0, 6))
@settings(deadline=None, max_examples=100)
def test_the_search_of_a_sure_model_is_the_one_defined(seed, beam_size, length_penalty, sureness, longest):
    """Sentences whose best continuation has nearly all probability; `</s>` is among the others."""
    generator = torch.Generator().manual_seed(seed)
    logits = sureness * torch.randn(9, 12, BLOCK, generator=generator).double()
    logits[..., [PAD, BOS, *range(12, BLOCK)]] = -math.inf
    tables, limits = logits.log_softmax(-1), torch.arange(9) % (longest + 1) + longest + 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transformer.decoding.beam_search.CachedDecoder", lambda *_: Chains(tables))
        found = beam_search([], torch.zeros(9, 1).long(), limits, beam_size=beam_size, length_penalty=length_penalty)
    for table, limit, hypotheses in zip(tables.tolist(), limits.tolist(), found, strict=True):

        def logs(beams, table=table):
            return [table[ids[-1] if ids else BOS] for ids in beams]

        check(hypotheses, defined_search(logs, limit, beam_size, length_penalty))


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
    seed=st.integers(0, 10**6),
    beam_size=st.integers(1, 5),
    length_penalty=st.floats(0, 2),
    extra_length=st.integers(0, 8),
    norm=st.sampled_from(["pre", "post"]),
    positions=st.sampled_from(["sinusoidal", "learned"]),
    key_size=st.sampled_from([0, 3, 11]),
    vocabulary=st.sampled_from([19, 23, 130]),
    scores_at_once=st.sampled_from([1, 500, 2**23]),
)
@settings(deadline=None, max_examples=20)
def test_the_search_is_the_one_that_is_defined(seed, beam_size, length_penalty, extra_length, scores_at_once, **sizes):
    model = model64(seed, **sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SCORES_AT_ONCE, "cpu", scores_at_once)
        results = search(model, SENTENCES, beam_size, length_penalty, extra_length)
    for source, hypotheses in zip(SENTENCES, results, strict=True):

        def logs(beams, source=source):
            return log_probabilities(model, source, beams)[:, -1].tolist()

        limit = max(1, len(source) + extra_length)
        check(hypotheses, defined_search(logs, limit, beam_size, length_penalty))


def test_random_models_end_some_translations_only():
    """The other tests need translations that end before their limit, and translations that reach it."""
    ended = [
        len(hypothesis.ids) < len(source) + 6
        for seed in range(8)
        for source, hypotheses in zip(SENTENCES, search(model64(seed), SENTENCES), strict=True)
        for hypothesis in hypotheses
    ]
    assert 0.2 < sum(ended) / len(ended) < 0.8


@pytest.mark.parametrize("order", [1, -1])
def test_an_ensemble_may_have_models_of_different_precisions(order):
    models, exact = [model64(3), model64(4).float()][::order], [model64(3), model64(4)]
    for mixed, precise in zip(search(models, SENTENCES), search(exact, SENTENCES), strict=True):
        assert mixed[0].ids == precise[0].ids
        assert mixed[0].log_probability == pytest.approx(precise[0].log_probability, abs=1e-4)
    targets = [[6, 7]] * len(SENTENCES)
    for mixed, precise in zip(*(score_ids(part, SENTENCES, targets) for part in (models, exact)), strict=True):
        assert mixed == pytest.approx(precise, abs=1e-4)


@given(st.integers(0, 10**6))
@settings(deadline=None, max_examples=10)
def test_an_ensemble_averages_the_probabilities_of_its_models(seed):
    models = [model64(seed), model64(seed + 1)]
    for source, hypotheses in zip(SENTENCES, search(models, SENTENCES), strict=True):
        for hypothesis in hypotheses:
            ids = [*hypothesis.ids, EOS][: len(source) + 6]  # at the limit there is no </s>
            shares = [log_probabilities(model, source, [hypothesis.ids])[0].exp() for model in models]
            total = sum(math.log((sum(shares) / 2)[place, subword]) for place, subword in enumerate(ids))
            assert hypothesis.log_probability == pytest.approx(total, abs=1e-9)


def test_no_translation_ends_before_min_length():
    source = torch.tensor([[5, 6, EOS], [9, EOS, PAD]])
    results = beam_search([model64()], source, torch.tensor([9, 9]), beam_size=3, length_penalty=0.6, min_length=9)
    assert {len(hypothesis.ids) for hypotheses in results for hypothesis in hypotheses} == {8, 9}
    # fewer subwords than beams: what cannot be continued is no hypothesis
    small = Transformer(TransformerConfig(5, d_model=8, d_ff=8, heads=2, layers=1)).double().eval()
    results = beam_search([small], source % 5, torch.tensor([4, 2]), beam_size=8, length_penalty=0.6, min_length=2)
    assert all(math.isfinite(hypothesis.log_probability) for hypotheses in results for hypothesis in hypotheses)
    assert all(hypotheses for hypotheses in results)


@given(st.integers(0, 10**6), st.integers(2, 5), st.integers(1, 40))
@settings(deadline=None, max_examples=15)
def test_a_search_finds_as_many_alternatives_as_it_has_beams(seed, extra_length, beam_size):
    """Those that reached the length limit before </s> come last."""
    results = search(model64(seed), SENTENCES, beam_size, extra_length=extra_length)
    for source, hypotheses in zip(SENTENCES, results, strict=True):
        limit = len(source) + extra_length
        assert len({hypothesis.ids for hypothesis in hypotheses}) == beam_size
        order = [(len(hypothesis.ids) == limit, -hypothesis.score) for hypothesis in hypotheses]
        assert order == sorted(order)
        for hypothesis in hypotheses:
            assert len(hypothesis.ids) <= limit
            assert not {PAD, BOS, EOS} & set(hypothesis.ids)


@given(st.lists(st.integers(0, 4), min_size=4, max_size=12), st.integers(1, 4))
def test_of_equal_scores_the_earlier_beam_then_the_lower_id_wins(scores, count):
    _, places = sorted_or_top(torch.tensor([scores], dtype=torch.float64), count)
    assert places[0].tolist() == sorted(range(len(scores)), key=lambda place: (-scores[place], place))[:count]


@given(st.integers(0, 10**6))
@settings(deadline=None, max_examples=10)
def test_of_equal_scores_in_several_blocks_the_same_wins(seed):
    """Two beams, a vocabulary of three blocks."""
    random = torch.Generator().manual_seed(seed)
    steps = (9 * torch.rand(1, 2, 3 * BLOCK, generator=random).double() ** 30).floor()  # mostly zeros
    scores = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    totals = (steps + scores[:, :, None]).flatten().tolist()
    expected = sorted(range(len(totals)), key=lambda place: (-totals[place], place))[:4]
    found = best_continuations(scores, steps)
    assert [*zip(found.parents[0].tolist(), found.subwords[0].tolist(), strict=True)] == [
        divmod(place, 3 * BLOCK) for place in expected
    ]
    assert found.scores[0].tolist() == [totals[place] for place in expected]


def test_the_length_penalty_is_equation_14_of_wu_et_al():
    assert length_divisor(1, 0.6) == 1
    assert length_divisor(19, 0.6) == pytest.approx(4**0.6)
    assert length_divisor(7, 0) == 1
