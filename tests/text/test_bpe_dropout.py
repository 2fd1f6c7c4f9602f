"""BPE-dropout: splits of the training words are drawn anew in each epoch, as subword-nmt draws them."""

from __future__ import annotations

import io
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from subword_nmt import apply_bpe
from support.tiny import CODES, drawn_pairs, random_pairs

from transformer.text import bpe_dropout
from transformer.text.bpe import Merges, learn_merges
from transformer.text.bpe_dropout import DrawnPairs, SkippedMerges
from transformer.text.marks import join
from transformer.text.pairs import Pairs
from transformer.text.vocabulary import SPECIALS, UNK, Vocabulary

DRAWS = 20_000
# words with a pair of symbols twice, with pairs that overlap, of one letter, and as the text marks them
WORDS = ["▁bananenanbau", "anananan", "aaaaa", "▁Bananen", "▁a", "x", "anbau"]
REPEATED = Merges(learn_merges(Counter([*WORDS, "aa", "aaaa", "ananas"] * 3), 12))


@pytest.mark.parametrize("dropout", [0.1, 0.6])
@pytest.mark.parametrize("word", range(len(WORDS)))
def test_splits_are_as_frequent_as_those_of_subword_nmt(word, dropout):
    merges = SkippedMerges(REPEATED, WORDS, dropout)
    changed, splits = merges.draw(np.full(DRAWS, word), np.random.default_rng(1))
    own = Counter(tuple(merges.symbols[symbol] for symbol in split) for split in splits)
    own[tuple(REPEATED.subwords([WORDS[word]]))] += DRAWS - len(changed)
    bpe = apply_bpe.BPE(io.StringIO(REPEATED.codes), separator="")
    random.seed(1)
    other = Counter(tuple(bpe.segment_tokens([WORDS[word]], dropout)) for _ in range(DRAWS))
    often = [split for split in own | other if own[split] + other[split] > 20]
    distance = sum((own[split] - other[split]) ** 2 / (own[split] + other[split]) for split in often)
    assert distance < len(often) + 4 * (2 * len(often)) ** 0.5  # chi-square: its mean and four standard deviations
    assert sum((own + other)[split] for split in often) > 1.97 * DRAWS


letters = st.text("abcdefgh", min_size=1, max_size=9)


@given(st.lists(st.lists(letters, min_size=1, max_size=6), min_size=1, max_size=20), st.floats(0.01, 0.99))
@settings(deadline=None, max_examples=50)
def test_every_epoch_spells_the_same_text(lines, dropout):
    merges = Merges(CODES)
    vocabulary = Vocabulary([*SPECIALS, *"abcdefgh", "▁", "cd", "ef", "gh", "abc", "def"])  # without "ab" and "de"
    tokens = [["▁" + line[0], *line[1:]] for line in lines]
    ids = [vocabulary.ids(merges.subwords(line)) for line in tokens]
    pairs = Pairs.pack(zip(ids, ids, strict=True))
    draw = DrawnPairs(pairs, zip(tokens, tokens, strict=True), merges, vocabulary, dropout, 1, 100)
    for epoch in range(3):
        drawn = draw(epoch)
        for side in (drawn.source, drawn.target):
            for line, usual, own in zip(tokens, ids, side, strict=True):
                assert UNK in usual or vocabulary.text(own) == join(line)
                assert own.tolist().count(UNK) <= usual.count(UNK)


def test_an_epoch_depends_on_none_drawn_before(tmp_path):
    pairs = random_pairs(tmp_path, 200)
    draw, again = drawn_pairs(pairs, 0.3), drawn_pairs(pairs, 0.3)
    epochs = [draw(epoch).target.ids.tolist() for epoch in range(3)]
    assert again(2).target.ids.tolist() == epochs[2]
    assert len({*map(tuple, epochs)}) == 3
    assert len(epochs[0]) > 1.1 * len(pairs.target.ids)


def test_seeds_and_blocks_draw_other_splits(tmp_path, monkeypatch):
    monkeypatch.setattr(bpe_dropout, "BLOCK_PAIRS", 100)
    once = list(random_pairs(tmp_path, 100).rows())
    pairs = Pairs.pack([(source, target) for source, target, _ in once * 2])
    drawn = drawn_pairs(pairs, 0.3)(0)
    first, second = (drawn.target.padded(np.arange(start, start + 100)).tolist() for start in (0, 100))
    assert first != second
    assert drawn_pairs(pairs, 0.3, seed=4)(0).target.ids.tolist() != drawn.target.ids.tolist()


def test_a_pair_that_becomes_too_long_keeps_its_splits(tmp_path):
    pairs = random_pairs(tmp_path, 200)
    most = int(pairs.longest.max()) - 1
    drawn = drawn_pairs(pairs, 0.9, most)(0)
    assert drawn.longest.max() == most + 1
    assert len(drawn.source.ids) > len(pairs.source.ids)
    whole = drawn_pairs(pairs, 0.9, 1000)(0)
    long = np.flatnonzero(whole.longest > most + 1)
    assert len(long) > 20
    for row in long:
        assert drawn.source.padded(np.array([row])).tolist() == pairs.source.padded(np.array([row])).tolist()


def test_tokens_that_are_not_those_of_the_pairs_are_refused():
    pairs, vocabulary = Pairs.pack([([4], [5])]), Vocabulary([*SPECIALS, "a", "b"])
    with pytest.raises(ValueError, match="The ids of the training pairs were not made of these tokens"):
        DrawnPairs(pairs, [[["a"], ["a"]]], Merges(CODES), vocabulary, 0.1, 1, 10)


def test_a_word_list_without_merges_draws_nothing():
    pairs, vocabulary = Pairs.pack([([4], [5])]), Vocabulary([*SPECIALS, "ab", "cd"])
    drawn = DrawnPairs(pairs, [[["ab"], ["cd"]]], Merges("#version: 0.2\n"), vocabulary, 0.5, 1, 10)(4)
    assert drawn.source.ids.tolist() == pairs.source.ids.tolist()
