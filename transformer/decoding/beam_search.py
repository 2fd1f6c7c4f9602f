"""Source ids to translations by beam search, over cached keys and values.

The definition of the search, for the whole project. The N = beam_size beams of a sentence start with <s>. In each step:
1. Each beam is continued by each subword of the vocabulary. The score of a continuation is the sum of the
   log-probabilities of its subwords. The best 2N continuations of all beams are the candidates.
2. Those of the first N candidates that end in </s> are finished hypotheses.
3. The best N candidates that do not end in </s> are the beams of the next step.
The search of a sentence ends when N hypotheses are finished, or when its beams reach the length limit. A finished
hypothesis of n subwords, </s> counted, has the score log P / ((5 + n) / 6)^length_penalty (Wu et al. 2016, eq. 14).
If fewer than N are finished at the limit, the unfinished beams follow them; their n and log P do not include </s>.
Of equal scores the earlier beam comes first, then the lower id. So beam_size 1 is greedy search.
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
    finished: Tensor  # (B,) number of finished hypotheses
    ended_ids: Tensor  # (B, 2N, 1 + t) hypotheses in the order in which they finished, then unfinished ones
    ended_lengths: Tensor  # (B, 2N) their subwords, </s> not counted
    ended_scores: Tensor  # (B, 2N) their sums of log-probabilities; -inf in unused rows
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
    no_scores = torch.full((sentences, 2 * beam_size), -math.inf, dtype=precision, device=source.device)
    scores = no_scores[:, :beam_size].clone()
    scores[:, 0] = 0.0  # the beams are equal, so only the first one may be continued
    return Beams(
        rows=torch.arange(sentences, device=source.device),
        limits=limits,
        ids=source.new_full((sentences, beam_size, 1), BOS),
        scores=scores,
        finished=source.new_zeros(sentences),
        ended_ids=source.new_full((sentences, 2 * beam_size, 1), BOS),
        ended_lengths=source.new_zeros(sentences, 2 * beam_size),
        ended_scores=no_scores,
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
    """Add those of the first N candidates that end in </s> to the ended hypotheses."""
    beam_size, length = beams.ids.shape[1:]  # length counts <s>
    scores, parents, subwords = (part[:, :beam_size] for part in candidates)
    finished = (subwords == EOS) & (scores > -math.inf) & ~beams.settled[:, None]
    # The other candidates are written to the last of the 2N rows. No hypothesis needs it: fewer than N were finished
    # before this step, and at most N are added.
    places = torch.where(finished, beams.finished[:, None] + finished.cumsum(1) - 1, 2 * beam_size - 1)
    ids = beams.ids.take_along_dim(parents[:, :, None], 1)
    beams.ended_ids.scatter_(1, places[:, :, None].expand_as(ids), ids)
    beams.ended_lengths.scatter_(1, places, torch.full_like(places, length - 1))
    beams.ended_scores.scatter_(1, places, scores.masked_fill(~finished, -math.inf))
    beams.finished += finished.sum(1)


def keep_best(beams: Beams, candidates: Candidates, decoder: CachedDecoder) -> None:
    """Make the best N candidates that do not end in </s> the beams of the next step."""
    # a stable sort of "ends in </s>" puts the unfinished candidates first, in their order
    unfinished = (candidates.subwords == EOS).to(torch.uint8).sort(dim=1, stable=True).indices[:, : beams.ids.shape[1]]
    beams.scores, parents, subwords = (part.gather(1, unfinished) for part in candidates)
    decoder.reorder(parents)
    beams.ids = torch.cat((beams.ids.take_along_dim(parents[:, :, None], 1), subwords[:, :, None]), dim=2)
    beams.ended_ids = F.pad(beams.ended_ids, (0, 1), value=PAD)


def settle(beams: Beams) -> None:
    """Mark the sentences whose search has ended: N hypotheses are finished, or the beams have reached the limit.

    For a sentence at its limit, the beams become the hypotheses that follow its finished ones.
    """
    beam_size, length = beams.ids.shape[1:]  # length counts <s>
    at_limit = beams.limits < length
    cut_off = (at_limit & (beams.finished < beam_size) & ~beams.settled)[:, None]
    # As in collect_finished, no hypothesis needs the last of the 2N rows: fewer than N are finished, and N follow.
    following = beams.finished[:, None] + torch.arange(beam_size, device=beams.finished.device)
    places = torch.where(cut_off, following, 2 * beam_size - 1)  # (B, N)
    beams.ended_ids.scatter_(1, places[:, :, None].expand_as(beams.ids), beams.ids)
    beams.ended_lengths.scatter_(1, places, torch.full_like(places, length - 1))
    beams.ended_scores.scatter_(1, places, beams.scores.masked_fill(~cut_off, -math.inf))
    beams.settled |= at_limit | (beams.finished >= beam_size)


def drop_settled(beams: Beams, decoder: CachedDecoder, results: list[list[Hypothesis]], length_penalty: float) -> Beams:
    """Remove the settled sentences from the search, write their hypotheses to results, and return the other beams.

    Nothing happens before an eighth of the sentences is settled, because removing copies all the others.
    """
    settled = beams.settled.nonzero().flatten()
    if len(settled) * 8 < len(beams.rows) or not len(settled):
        return beams
    dropped, beam_size = beams.select(settled), beams.ids.shape[1]
    parts = (dropped.rows, dropped.finished, dropped.ended_ids, dropped.ended_lengths, dropped.ended_scores)
    for row, finished, *ids_lengths_scores in zip(*(part.tolist() for part in parts), strict=True):
        hypotheses = [(ids[1 : length + 1], score) for ids, length, score in zip(*ids_lengths_scores, strict=True)]
        unfinished = [pair for pair in hypotheses[finished:] if pair[1] > -math.inf]
        results[row] = ranked(hypotheses[:finished], unfinished, length_penalty, beam_size)
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
