"""Sentences of any lengths to batches for decoding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from transformer.text.vocabulary import PAD


def batches(sources: Sequence[Sequence[int]], batch_tokens: int) -> Iterator[list[int]]:
    """Yield the numbers of the sources of each batch: sources of similar length, the longest batches first.

    A batch has sentences x (longest + 1 for </s>) <= batch_tokens, or one sentence.
    """
    order = sorted(range(len(sources)), key=lambda row: len(sources[row]))
    end = len(order)
    while end:
        size = max(1, batch_tokens // (len(sources[order[end - 1]]) + 1))
        start = max(0, end - size)
        yield order[start:end]
        end = start


def padded(sequences: Sequence[Sequence[int]]) -> Tensor:
    """Sequences of ids to a tensor, filled up with <pad>: (B, longest)."""
    rows = [torch.tensor(sequence) for sequence in sequences]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
