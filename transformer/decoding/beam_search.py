"""Beam search (greedy search is its narrowest) over cached keys and values.

The search (one definition for the whole project): per step take the best 2k continuations of the k beams; those among
the first k that end in </s> are finished, the best unfinished fill the k places; stop at k finished or at the limit.
A finished hypothesis of n subwords, </s> counted, scores log P / ((5 + n) / 6)^length_penalty (Wu et al. 2016, eq. 14).
Equal scores go to the earlier beam, then to the lower id. So beam_size 1 is greedy search.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer.decoding.cached_decoder import BLOCK, CachedDecoder
from transformer.decoding.config import SearchConfig
from transformer.decoding.hypothesis import Hypothesis, ranked
from transformer.model.transformer import Transformer
from transformer.text.vocabulary import BOS, EOS, PAD


@dataclass
class Beams:
    """A batch under search: B sentences, N = beam_size beams each, t subwords so far. All of it stays on the device."""

    rows: Tensor  # (B,) which sentence of the batch
    limits: Tensor  # (B,) longest output, </s> counted
    ids: Tensor  # (B, N, 1 + t) <s> and the subwords so far
    scores: Tensor  # (B, N) sums of log-probabilities
    ended: Tensor  # (B,) how many hypotheses have ended in </s>
    done_ids: Tensor  # (B, 2N, 1 + t) these, in the order in which they ended, and padding behind them
    done_lengths: Tensor  # (B, 2N) their subwords, </s> not counted
    done_scores: Tensor  # (B, 2N) their sums of log-probabilities, -inf where there is none
    settled: Tensor  # (B,) the search has ended

    def select(self, rows: Tensor) -> Beams:
        """Some sentences only."""
        return Beams(**{name: part[rows] for name, part in vars(self).items()})


@torch.inference_mode()
def beam_search(
    models: Sequence[Transformer],
    source: Tensor,
    limits: Tensor,
    *,
    beam_size: int,
    length_penalty: float,
    min_length: int = 0,
) -> list[list[Hypothesis]]:
    """Translate source ids (B, S), padded, each ending in </s>. limits (B,): longest output of each, </s> counted.

    Several models are an ensemble: the mean of their probabilities counts. </s> may not come before min_length
    subwords. Returns for each sentence at most beam_size hypotheses, best first. A sentence whose search meets its
    limit before any hypothesis ended gets its unfinished ones.
    """
    results: list[list[Hypothesis]] = [[] for _ in range(len(source))]
    decoder = CachedDecoder(models, source, beam_size)
    beams = start(source, limits, beam_size, decoder.precision)
    while len(beams.rows):
        steps = decoder.step(beams.ids[:, :, -1])
        if decoder.place < min_length:
            steps[..., EOS] = -math.inf
        candidates = best_continuations(beams.scores, steps)
        collect_finished(beams, candidates)
        keep_best(beams, candidates, decoder)
        settle(beams)
        if not source.is_cuda or decoder.place % 8 == 0:  # to ask a GPU is to wait for it
            beams = drop_settled(beams, decoder, results, length_penalty)
    return results


def start(source: Tensor, limits: Tensor, width: int, precision: torch.dtype) -> Beams:
    """Open every beam with <s>."""
    count = len(source)
    scores = torch.full((count, 2 * width), -math.inf, dtype=precision, device=source.device)
    opened = scores[:, :width].clone()
    opened[:, 0] = 0.0  # the beams are still equal: only the first may be continued
    return Beams(
        rows=torch.arange(count, device=source.device),
        limits=limits.clamp(min=1),
        ids=source.new_full((count, width, 1), BOS),
        scores=opened,
        ended=source.new_zeros(count),
        done_ids=source.new_full((count, 2 * width, 1), BOS),
        done_lengths=source.new_zeros(count, 2 * width),
        done_scores=scores,
        settled=source.new_zeros(count, dtype=torch.bool),
    )


class Candidates(NamedTuple):
    """The best continuations of all beams of a sentence, best first: (B, 2N) each."""

    scores: Tensor  # sums of log-probabilities
    parents: Tensor  # the beams that they continue
    subwords: Tensor


def best_continuations(scores: Tensor, steps: Tensor) -> Candidates:
    """The best 2N of all continuations, of beams worth scores (B, N), by subwords worth steps (B, N, W).

    The result overwrites steps.
    """
    count, width, vocabulary = steps.shape
    # whatever is among the best 2N stands in one of the 2N blocks with the largest maxima
    blocks = steps.add_(scores[:, :, None]).view(count, -1, BLOCK)
    chosen = largest(blocks.amax(-1), min(2 * width, blocks.shape[1]))[1].sort(1).values
    inside = blocks.take_along_dim(chosen[:, :, None], 1).flatten(1)
    values, places = largest(inside, min(2 * width, inside.shape[1]))
    places = chosen.gather(1, places // BLOCK) * BLOCK + places % BLOCK
    return Candidates(values, places // vocabulary, places % vocabulary)


def largest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row and their places, largest first, equal ones in the order of their places."""
    if not values.is_cuda:  # there the question whether any are equal costs more than sorting
        top, places = values.topk(count)
        if not bool(((values >= top[:, -1:]).sum(1) > count).any() | (top[:, 1:] == top[:, :-1]).any()):
            return top, places
    top, places = values.sort(dim=1, descending=True, stable=True)
    return top[:, :count], places[:, :count]


def collect_finished(beams: Beams, candidates: Candidates) -> None:
    """Add the hypotheses that end in </s> among the first N candidates to those that are done."""
    width, length = beams.ids.shape[1:]  # length counts <s>
    scores, parents, subwords = (part[:, :width] for part in candidates)
    ended = (subwords == EOS) & (scores > -math.inf) & ~beams.settled[:, None]
    # the last of the 2N places is never needed: fewer than N are done before, at most N come
    places = torch.where(ended, beams.ended[:, None] + ended.cumsum(1) - 1, 2 * width - 1)
    ids = beams.ids.take_along_dim(parents[:, :, None], 1)
    beams.done_ids.scatter_(1, places[:, :, None].expand_as(ids), ids)
    beams.done_lengths.scatter_(1, places, torch.full_like(places, length - 1))
    beams.done_scores.scatter_(1, places, scores.masked_fill(~ended, -math.inf))
    beams.ended += ended.sum(1)


def keep_best(beams: Beams, candidates: Candidates, decoder: CachedDecoder) -> None:
    """The best N unfinished candidates become the beams."""
    # a stable sort brings the unfinished to the front and leaves them in their order
    unfinished = (candidates.subwords == EOS).to(torch.uint8).sort(dim=1, stable=True).indices[:, : beams.ids.shape[1]]
    beams.scores, parents, subwords = (part.gather(1, unfinished) for part in candidates)
    decoder.follow(parents)
    beams.ids = torch.cat((beams.ids.take_along_dim(parents[:, :, None], 1), subwords[:, :, None]), dim=2)
    beams.done_ids = F.pad(beams.done_ids, (0, 1), value=PAD)


def settle(beams: Beams) -> None:
    """Note which sentences have N hypotheses or are at their limit; one at its limit without any takes its beams."""
    width, length = beams.ids.shape[1:]
    at_limit = beams.limits < length
    without = (at_limit & (beams.ended == 0) & ~beams.settled)[:, None]
    beams.done_ids[:, :width] = torch.where(without[:, :, None], beams.ids, beams.done_ids[:, :width])
    beams.done_lengths.masked_fill_(without, length - 1)
    beams.done_scores[:, :width] = torch.where(without, beams.scores, beams.done_scores[:, :width])
    beams.settled |= at_limit | (beams.ended >= width)


def drop_settled(beams: Beams, decoder: CachedDecoder, results: list[list[Hypothesis]], length_penalty: float) -> Beams:
    """Leave out the sentences whose search has ended, once they are an eighth of the batch, and write their results."""
    settled = beams.settled.nonzero().flatten()
    if len(settled) * 8 < len(beams.rows) or not len(settled):
        return beams
    gone, width = beams.select(settled), beams.ids.shape[1]
    for row, ended, ids, lengths, scores in zip(
        *(part.tolist() for part in (gone.rows, gone.ended, gone.done_ids, gone.done_lengths, gone.done_scores)),
        strict=True,
    ):
        found = zip(ids, lengths, scores, strict=True)
        found = [(these[1 : length + 1], score) for these, length, score in found if score > -math.inf]
        results[row] = ranked(found, bool(ended), length_penalty, width)
    stay = (~beams.settled).nonzero().flatten()
    decoder.select(stay)
    return beams.select(stay)


def translate_ids(
    models: Sequence[Transformer],
    sources: Sequence[Sequence[int]],
    config: SearchConfig,
    batch_tokens: int = 8192,
    progress: Callable[[int], object] = lambda count: None,
) -> list[list[Hypothesis]]:
    """Search for many sentences, of any lengths, in batches of beam_size x sentences x longest <= batch_tokens.

    sources: ids without </s>. The output limit is source subwords + extra_length, </s> counted (section 6.1). Several
    models are an ensemble. progress(count) is called after each batch.
    """
    results: list[list[Hypothesis]] = [[] for _ in sources]
    device = next(models[0].parameters()).device
    for rows in batches(sources, batch_tokens // config.beam_size):
        source = padded([[*sources[row], EOS] for row in rows])
        limits = torch.tensor([len(sources[row]) + config.extra_length for row in rows])
        found = beam_search(
            models,
            source.to(device),
            limits.to(device),
            beam_size=config.beam_size,
            length_penalty=config.length_penalty,
        )
        for row, hypotheses in zip(rows, found, strict=True):
            results[row] = hypotheses
        progress(len(rows))
    return results


def batches(sources: Sequence[Sequence[int]], batch_tokens: int) -> Iterator[list[int]]:
    """Rows of like length, the longest first: so many that, with </s> and padding, they have at most batch_tokens."""
    order = sorted(range(len(sources)), key=lambda row: len(sources[row]))
    while order:
        size = max(1, batch_tokens // (len(sources[order[-1]]) + 1))
        rows, order = order[-size:], order[:-size]
        yield rows


def padded(sequences: Sequence[Sequence[int]]) -> Tensor:
    """Sequences of ids, filled up with <pad>: (B, longest)."""
    rows = [torch.tensor(sequence) for sequence in sequences]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
