# pyright: reportMissingImports=false
"""The batches that JoeyNMT and OpenNMT-py make of the same pairs, by their own code, from lengths instead of text."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from transformer.text.pairs import Pairs

Epoch = Callable[[int], list[np.ndarray]]  # number of an epoch, from 0 -> row numbers of each of its batches


class Epochs:
    """The batch of every update, counted from 1. Epochs may have different numbers of batches."""

    def __init__(self, epoch: Epoch):
        self.epoch, self._ends = epoch, [0]  # the last update before each epoch
        self._number, self._batches = -1, []

    def __getitem__(self, step: int) -> np.ndarray:
        """Row numbers of the pairs of update `step`."""
        while step > self._ends[-1]:
            self._load(len(self._ends) - 1)
            self._ends.append(self._ends[-1] + len(self._batches))
        number = bisect_left(self._ends, step) - 1
        if number != self._number:
            self._load(number)
        return self._batches[step - 1 - self._ends[number]]

    def _load(self, number: int) -> None:
        self._number, self._batches = number, self.epoch(number)


class JoeyPair(NamedTuple):
    """A pair as JoeyNMT's samplers read it: its number, and two sequences without </s>."""

    row: int
    source: range
    target: range


class JoeyData:
    """A dataset with all that JoeyNMT's samplers read of one."""

    def __init__(self, pairs: Pairs, seed: int):
        self.source, self.target = pairs.source_lengths.tolist(), pairs.target_lengths.tolist()
        self.indices, self.random_subset, self.split, self.seed = list(range(len(pairs))), -1, "train", seed

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, row: int) -> JoeyPair:
        return JoeyPair(row, range(self.source[row] - 1), range(self.target[row] - 1))


def joeynmt_epoch(pairs: Pairs, seed: int, batch_tokens: int) -> Epoch:
    """The batches of JoeyNMT's BaseDataset.make_iter with batch_type "token".

    Pairs are in random order, and a batch ends as soon as sentences x longest side reach `batch_tokens`. Each epoch has
    its own seed, as in TrainManager.
    """
    from joeynmt.datasets import TokenBatchSampler
    from joeynmt.helpers_for_ddp import RandomSubsetSampler

    data: Any = JoeyData(pairs, seed)
    order = RandomSubsetSampler(data, shuffle=True, generator=torch.Generator())
    batches = TokenBatchSampler(order, batch_size=batch_tokens, drop_last=False, seed=seed)

    def epoch(number: int) -> list[np.ndarray]:
        batches.set_seed(seed + number)
        return [np.array(rows) for rows in batches]

    return epoch


def opennmt_epoch(pairs: Pairs, seed: int, batch_tokens: int, multiple: int, bucket_size: int) -> Epoch:
    """The batches of OpenNMT-py's DynamicDatasetIter with batch_type "tokens".

    The corpus is cut into buckets without shuffling. A bucket is sorted by length and cut where the next sentence would
    exceed `batch_tokens`; its batches are shuffled. A second pair with the same source in a batch is left out.
    DynamicDatasetIter's __iter__ and _bucketing read files, so their handling of a bucket is repeated here. There, the
    last bucket is filled up from the next pass over the corpus; here, it ends with the corpus.
    """
    from onmt.constants import CorpusTask
    from onmt.inputters.dynamic_iterator import DynamicDatasetIter
    from onmt.utils.misc import RandomShuffler

    iterator = DynamicDatasetIter({}, {}, {}, {}, CorpusTask.TRAIN, "tokens", batch_tokens, multiple)
    examples = []
    for row, (source, target) in enumerate(zip(pairs.source, pairs.target_lengths.tolist(), strict=True)):
        if len(source) > 1:  # OpenNMT-py has no </s> in a source, and <s> in a target
            sides = {"src": source.tobytes(), "src_ids": range(len(source) - 1)}, {"tgt_ids": range(target + 1)}
            examples.append((dict(zip(("src", "tgt"), sides, strict=True)), row))

    def batches(bucket: list) -> list[np.ndarray]:
        ordered = sorted(bucket, key=lambda example: iterator.sort_key(example[0]))
        return [
            np.array([row for _, row in batch])
            for batch in iterator.batch_iter(ordered, batch_tokens, "tokens", multiple)
        ]

    buckets = [batches(examples[start : start + bucket_size]) for start in range(0, len(examples), bucket_size)]

    def epoch(number: int) -> list[np.ndarray]:
        shuffled = RandomShuffler(random.Random(seed + number).getstate())
        return [rows for bucket in buckets for rows in shuffled(bucket)]

    return epoch
