"""Batches are a function of data, seed and epoch. They contain each pair once and are not larger than requested."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiny import random_pairs

from transformer.files import Untrainable
from transformer.text.pairs import Pairs, Sequences
from transformer.text.vocabulary import BOS, EOS, PAD
from transformer.training.batches import Batches, deal, global_batches, idle_remark, micro_batches, split_by_tokens

lengths = st.lists(st.integers(1, 40), min_size=1, max_size=200)
both_lengths = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=200)


def pairs_of(sizes: list[tuple[int, int]]) -> Pairs:
    """Pairs with these lengths of source and target."""
    starts = [np.concatenate([[0], np.cumsum(side)]) for side in zip(*sizes, strict=True)]
    return Pairs(*(Sequences(np.ones(s[-1], np.int32), s) for s in starts), np.arange(1, len(sizes) + 1))


def fits(pairs: Pairs, rows: np.ndarray, tokens: int) -> bool:
    """Whether a batch of these pairs has at most so many tokens, padding included, on each side."""
    return all(side.pad(rows).size <= tokens for side in (pairs.source, pairs.target))


@given(both_lengths, st.integers(40, 200), st.integers(0, 5), st.integers(0, 5))
@settings(max_examples=100)
def test_an_epoch_has_each_pair_once_in_batches_of_batch_tokens(sizes, tokens, seed, epoch):
    pairs = pairs_of(sizes)
    batches = global_batches(pairs, seed, epoch, tokens)
    assert len(batches) == len(global_batches(pairs, seed, epoch + 1, tokens))
    assert sorted(np.concatenate(batches)) == list(range(len(sizes)))
    assert all(fits(pairs, rows, tokens) for rows in batches)


@given(lengths, st.integers(1, 60))
def test_slices_are_as_long_as_tokens_allows(sizes, tokens):
    longest = np.sort(np.array(sizes))
    slices = split_by_tokens(longest, tokens)
    assert [number for part in slices for number in range(part.start, part.stop)] == list(range(len(longest)))
    for part in slices:
        count = part.stop - part.start
        assert count * longest[part.stop - 1] <= tokens or count == 1
        if part.stop < len(longest):
            assert (count + 1) * longest[part.stop] > tokens


def test_batches_are_a_function_of_data_seed_and_epoch(tmp_path):
    pairs = random_pairs(tmp_path, 200)

    def batches(seed: int, epoch: int) -> list[list[int]]:
        return [rows.tolist() for rows in global_batches(pairs, seed, epoch, 100)]

    assert batches(1, 0) == batches(1, 0)
    assert batches(1, 0) != batches(2, 0)
    first, second = (set(map(frozenset, batches(1, epoch))) for epoch in (0, 1))
    assert len(first - second) > len(first) / 2  # another epoch has other groups, not only another order


def test_the_batch_of_an_update_depends_on_none_read_before(tmp_path):
    pairs = random_pairs(tmp_path, 100)
    in_order, from_the_end = Batches(pairs, 1, 100), Batches(pairs, 1, 100)
    expected = [in_order[step].tolist() for step in range(1, 80)]
    assert from_the_end[79].tolist() == expected[-1]
    assert from_the_end[3].tolist() == expected[2]


@given(both_lengths, st.integers(40, 300), st.integers(40, 80))
def test_micro_batches_are_a_batch_in_parts_of_device_tokens(sizes, tokens, device_tokens):
    pairs = pairs_of(sizes)
    for rows in global_batches(pairs, 0, 0, tokens):
        pieces = micro_batches(pairs, rows, device_tokens)
        assert np.concatenate(pieces).tolist() == rows.tolist()
        assert all(fits(pairs, piece, device_tokens) for piece in pieces)


def test_targets_start_with_bos_end_with_eos_and_are_padded(tmp_path):
    Pairs.save_rows(tmp_path, "train", [([5, 6], [8], 1), ([7], [9, 10], 2)], 20)
    source, target, places, output = Pairs.load(tmp_path, "train").batch(np.array([0, 1]))
    assert source.tolist() == [[5, 6, EOS], [7, EOS, PAD]]
    assert target.tolist() == [[BOS, 8, PAD], [BOS, 9, 10]]
    assert places.tolist() == [0, 1, 3, 4, 5]
    assert output.tolist() == [8, EOS, 9, 10, EOS]


def test_a_pair_too_long_for_a_device_is_named_by_its_line(tmp_path):
    """It is the fault of the knobs: a search tries others then."""
    Pairs.save_rows(tmp_path, "valid", [([5, 6], [8], 4), ([7] * 9, [9, 10], 17)], 20)
    Pairs.load(tmp_path, "valid").check_lengths("valid", 10)
    with pytest.raises(Untrainable, match=r"valid line 17 has 10 subwords, </s> included: more than device_tokens=9\."):
        Pairs.load(tmp_path, "valid").check_lengths("valid", 9)


@given(st.lists(st.integers(0, 5000), max_size=20), st.integers(1, 8))
def test_parts_are_dealt_once_each_and_by_their_tokens(tokens, processes):
    dealt = deal(tokens, processes)
    assert sorted(part for parts in dealt for part in parts) == list(range(len(tokens)))
    loads = [sum(tokens[part] for part in parts) for parts in dealt]
    assert len(dealt) == processes
    assert max(loads) <= sum(tokens) / processes + max(tokens, default=0)
    assert max(loads) - min(loads) <= max(tokens, default=0)
    assert deal([100, 10, 100, 10], 2) == [[0, 1], [2, 3]]


def test_processes_without_work_are_counted_with_a_remedy(tmp_path):
    batches = Batches(random_pairs(tmp_path, 400), 1, 400)
    assert idle_remark(batches, 1, 400, 12) == ""
    remark = idle_remark(batches, 4, 400, 12)
    assert remark.startswith("On average 3.0 of 4 processes have nothing to compute in an update: device_tokens=400 ")
    better = int(re.search(r"With device_tokens=(\d+) they would have work", remark)[1])
    assert idle_remark(batches, 4, better, 12) == ""
    assert better > 50
    assert "Use fewer processes, or raise batch_tokens" in idle_remark(batches, 300, 400, 12)
