"""Source ids to translations by beam search, over cached keys and values.

The definition of the search, for the whole project. The N = beam_size beams of a sentence start with <s>. In each step:
1. Each beam is continued by each subword of the vocabulary. The score of a continuation is the sum of the
   log-probabilities of its subwords. The best 2N continuations of all beams are the candidates.
2. Those of the first N candidates that end in </s> are finished hypotheses.
3. The best N candidates that do not end in </s> are the beams of the next step.
The search of a sentence ends when N hypotheses are finished and the best candidate of this or an earlier step ended in
</s>, or when its beams reach the length limit. (N finished hypotheses alone do not suffice: where a model is sure, one
beam has nearly all probability, and the others finish while that one is in the middle of its sentence.) Of more than N
finished hypotheses those with the largest log P are kept. One of n subwords, </s> counted, has the score
log P / ((5 + n) / 6)^length_penalty (Wu et al. 2016, eq. 14). If fewer than N are finished at the limit, the unfinished
beams follow them; their n and log P do not include </s>. Of equal scores the earlier beam comes first, then the lower
id. So beam_size 1 is greedy search.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer.decoding.batches import batches, padded
from transformer.decoding.cached_decoder import CachedDecoder, without_dropout
from transformer.decoding.config import SearchConfig
from transformer.decoding.hypothesis import Hypothesis, ranked
from transformer.decoding.largest import largest_per_row
from transformer.model.transformer import Transformer
from transformer.text.vocabulary import BOS, EOS, PAD


@dataclass
class Beams:
    """The state of the search of B sentences with N beams each, after t subwords. All tensors are on the device."""

    rows: Tensor  # (B,) the number of the sentence in the batch
    limits: Tensor  # (B,) length limit in subwords, </s> counted
    ids: Tensor  # (B, N, 1 + t) <s> and the subwords of each beam
    scores: Tensor  # (B, N) sum of log-probabilities of each beam
    ended_ids: Tensor  # (B, N, 1 + t) the best finished hypotheses, largest log P first
    ended_lengths: Tensor  # (B, N) their subwords, </s> not counted
    ended_scores: Tensor  # (B, N) their log P; -inf in unused rows
    best_ended: Tensor  # (B,) whether the best candidate of a step has ended in </s>
    settled: Tensor  # (B,) whether the search of the sentence has ended

    def select(self, rows: Tensor) -> Beams:
        """The state of only the sentences at the places `rows`."""
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
    before_step: Callable[[], object] = lambda: None,
) -> list[list[Hypothesis]]:
    """A batch of source ids (B, S) to at most beam_size hypotheses per sentence: finished ones first, best first.

    models: several are an ensemble, whose probability is the mean of theirs. source: padded, each sentence ends in
    </s>. limits (B,): length limit of each translation, </s> counted. min_length: no </s> before so many subwords.
    before_step: called before each step; what it raises ends the search.
    """
    results: list[list[Hypothesis]] = [[] for _ in range(len(source))]
    with without_dropout(models):
        decoder = CachedDecoder(models, source, beam_size)
        beams = initial_beams(source, limits, beam_size, decoder.precision)
        while len(beams.rows):
            before_step()
            steps = decoder.step(beams.ids[:, :, -1])  # (B, N, W)
            if decoder.position < min_length:
                steps[..., EOS] = -math.inf
            candidates = best_continuations(beams.scores, steps)
            collect_finished(beams, candidates)
            keep_best(beams, candidates, decoder)
            settle(beams)
            if not source.is_cuda or decoder.position % 8 == 0:  # on a GPU this waits for the device
                beams = drop_settled(beams, decoder, results, length_penalty)
    return results


def initial_beams(source: Tensor, limits: Tensor, beam_size: int, precision: torch.dtype) -> Beams:
    """The state before the first step: each beam is <s>. precision: of the scores."""
    sentences = len(source)
    no_scores = torch.full((sentences, beam_size), -math.inf, dtype=precision, device=source.device)
    scores = no_scores.clone()
    scores[:, 0] = 0.0  # the beams are equal, so only the first one may be continued
    return Beams(
        rows=torch.arange(sentences, device=source.device),
        limits=limits,
        ids=source.new_full((sentences, beam_size, 1), BOS),
        scores=scores,
        ended_ids=source.new_full((sentences, beam_size, 1), BOS),
        ended_lengths=source.new_zeros(sentences, beam_size),
        ended_scores=no_scores,
        best_ended=source.new_zeros(sentences, dtype=torch.bool),
        settled=source.new_zeros(sentences, dtype=torch.bool),
    )


class Candidates(NamedTuple):
    """The best continuations of the beams of each sentence, best first: (B, 2N) each."""

    scores: Tensor  # sums of log-probabilities
    parents: Tensor  # numbers of the beams that are continued
    subwords: Tensor  # ids of the subwords that continue them


def best_continuations(scores: Tensor, steps: Tensor) -> Candidates:
    """Scores of beams (B, N) and log-probabilities of the next subword (B, N, W) to candidates. Overwrites steps."""
    beam_size, vocabulary = steps.shape[1:]
    totals = steps.add_(scores[:, :, None]).flatten(1)  # (B, N, W) -> (B, N*W)
    values, places = largest_per_row(totals, 2 * beam_size)
    return Candidates(values, places // vocabulary, places % vocabulary)


def collect_finished(beams: Beams, candidates: Candidates) -> None:
    """Add those of the first N candidates that end in </s> to the ended hypotheses, and keep the N best of all.

    The rows of a settled sentence stay as they are.
    """
    beam_size, length = beams.ids.shape[1:]  # length counts <s>
    scores, parents, subwords = (part[:, :beam_size] for part in candidates)
    is_ended = (subwords == EOS) & ~beams.settled[:, None]
    scores = torch.cat((beams.ended_scores, scores.masked_fill(~is_ended, -math.inf)), 1)  # (B, 2N)
    lengths = torch.cat((beams.ended_lengths, torch.full_like(parents, length - 1)), 1)
    ids = torch.cat((beams.ended_ids, beams.ids.take_along_dim(parents[:, :, None], 1)), 1)  # (B, 2N, 1 + t)
    best = scores.sort(dim=1, descending=True, stable=True)
    beams.ended_scores, places = best.values[:, :beam_size], best.indices[:, :beam_size]
    beams.ended_lengths, beams.ended_ids = lengths.gather(1, places), ids.take_along_dim(places[:, :, None], 1)
    beams.best_ended |= is_ended[:, 0]


def keep_best(beams: Beams, candidates: Candidates, decoder: CachedDecoder) -> None:
    """Make the best N candidates that do not end in </s> the beams of the next step."""
    # a stable sort of "ends in </s>" puts the unfinished candidates first, in their order
    unfinished = (candidates.subwords == EOS).to(torch.uint8).sort(dim=1, stable=True).indices[:, : beams.ids.shape[1]]
    beams.scores, parents, subwords = (part.gather(1, unfinished) for part in candidates)
    decoder.reorder(parents)
    beams.ids = torch.cat((beams.ids.take_along_dim(parents[:, :, None], 1), subwords[:, :, None]), dim=2)
    beams.ended_ids = F.pad(beams.ended_ids, (0, 1), value=PAD)


def settle(beams: Beams) -> None:
    """Mark the sentences whose search has ended, by the definition at the top.

    For one at its limit with fewer than N ended hypotheses, its best beams take the unused rows: they follow.
    """
    length = beams.ids.shape[2]  # counts <s>
    at_limit, unused = beams.limits < length, beams.ended_scores == -math.inf
    follows = unused & (at_limit & ~beams.settled)[:, None]
    number = (unused.cumsum(1) - 1).clamp(min=0)  # of the beam that would take the row: the unused rows are the last
    beams.ended_scores = torch.where(follows, beams.scores.gather(1, number), beams.ended_scores)
    beams.ended_lengths = beams.ended_lengths.masked_fill(follows, length - 1)
    ids = beams.ids.take_along_dim(number[:, :, None], 1)
    beams.ended_ids = torch.where(follows[:, :, None], ids, beams.ended_ids)
    beams.settled |= at_limit | (beams.best_ended & ~unused.any(1))


def drop_settled(beams: Beams, decoder: CachedDecoder, results: list[list[Hypothesis]], length_penalty: float) -> Beams:
    """Remove the settled sentences from the search, write their hypotheses to results, and return the other beams.

    Nothing happens before an eighth of the sentences is settled, because removing copies all the others.
    """
    settled = beams.settled.nonzero().flatten()
    if len(settled) * 8 < len(beams.rows) or not len(settled):
        return beams
    dropped, beam_size = beams.select(settled), beams.ids.shape[1]
    parts = (dropped.rows, dropped.limits, dropped.ended_ids, dropped.ended_lengths, dropped.ended_scores)
    for row, limit, *ids_lengths_scores in zip(*(part.tolist() for part in parts), strict=True):
        found = [(ids[1 : length + 1], score) for ids, length, score in zip(*ids_lengths_scores, strict=True)]
        used = [pair for pair in found if pair[1] > -math.inf]
        ended = [pair for pair in used if len(pair[0]) < limit]  # in </s>, which counts for the limit
        unfinished = [pair for pair in used if len(pair[0]) == limit]
        results[row] = ranked(ended, unfinished, length_penalty, beam_size)
    remaining = (~beams.settled).nonzero().flatten()
    decoder.select(remaining)
    return beams.select(remaining)


def translate_ids(
    models: Sequence[Transformer],
    sources: Iterable[Sequence[int]],
    config: SearchConfig,
    batch_tokens: int = 8192,
    progress: Callable[[int], object] = lambda count: None,
    before_step: Callable[[], object] = lambda: None,
) -> list[list[Hypothesis]]:
    """Any number of sources, of any lengths, to their hypotheses: beam_search in batches.

    sources: ids without </s>. The length limit is source subwords + extra_length, </s> counted (section 6.1). Several
    models are an ensemble. A batch has beam_size x sentences x longest <= batch_tokens. progress: called with the
    number of sentences after each batch. before_step: called before each step; what it raises ends the search.
    """
    sources = list(sources)
    results: list[list[Hypothesis]] = [[] for _ in sources]
    device = next(models[0].parameters()).device
    for rows in batches(sources, batch_tokens // config.beam_size):
        source = padded([[*sources[row], EOS] for row in rows])
        limits = torch.tensor([len(sources[row]) + config.extra_length for row in rows])
        batch_results = beam_search(
            models,
            source.to(device),
            limits.to(device),
            beam_size=config.beam_size,
            length_penalty=config.length_penalty,
            before_step=before_step,
        )
        for row, hypotheses in zip(rows, batch_results, strict=True):
            results[row] = hypotheses
        progress(len(rows))
    return results
