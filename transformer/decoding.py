"""Greedy and beam search over cached keys and values.

The search (one definition for the whole project): per step take the best 2k continuations of the k beams; those among
the first k that end in </s> are finished, the best unfinished fill the k places; stop at k finished or at the limit.
A finished hypothesis of n subwords, </s> counted, scores log P / ((5 + n) / 6)^length_penalty (Wu et al. 2016, eq. 14).
Equal scores go to the earlier beam, then to the lower id. So beam_size 1 is greedy search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer.attention import KeysValues
from transformer.model import Transformer
from transformer.text import BOS, EOS, PAD


@dataclass(frozen=True)
class Hypothesis:
    """A translation: target ids without </s>, its score, and log P(ids and </s> | source)."""

    ids: tuple[int, ...]
    score: float
    log_probability: float


@dataclass
class Beams:
    """The unfinished hypotheses of the sentences still searched: B sentences, N = beam_size beams each."""

    rows: Tensor  # (B,) which sentence of the batch
    limits: Tensor  # (B,) longest output, </s> counted
    ids: Tensor  # (B, N, t) subwords so far, <s> first
    scores: Tensor  # (B, N) sums of log-probabilities
    past: list[KeysValues]  # per layer, keys and values of the subwords so far: (B*N, H, t, K)
    memory: list[KeysValues]  # per layer, keys and values of the source: (B, H, S, K)
    bias: Tensor  # (B, 1, 1, S), -inf at padding of the source


def length_divisor(length: int, length_penalty: float) -> float:
    """((5 + n) / 6)^alpha of a hypothesis with n subwords, </s> counted (Wu et al. 2016, equation 14)."""
    return ((5 + length) / 6) ** length_penalty


@torch.inference_mode()
def beam_search(
    model: Transformer, source: Tensor, limits: Tensor, *, beam_size: int, length_penalty: float
) -> list[list[Hypothesis]]:
    """Translate source ids (B, S), padded, each ending in </s>. limits (B,): longest output of each, </s> counted.

    Returns for each sentence at most beam_size hypotheses, best first. A sentence whose search meets its limit before
    any hypothesis ended gets its unfinished ones.
    """
    finished: list[list[Hypothesis]] = [[] for _ in range(len(source))]
    beams = start(model, source, limits, beam_size)
    while len(beams.rows):
        candidates = extend(model, beams)
        collect_finished(beams, candidates, finished, length_penalty)
        beams = keep_best(beams, candidates)
        beams = drop_settled(beams, finished, length_penalty)
    return [sorted(found, key=lambda h: -h.score)[:beam_size] for found in finished]


def start(model: Transformer, source: Tensor, limits: Tensor, beam_size: int) -> Beams:
    """Encode the sources, compute the keys and values of the memory once, and open every beam with <s>."""
    bias = model.source_bias(source)
    memory = model.encode(source, bias)
    past, of_memory = model.open_caches(memory, beam_size)
    count = len(source)
    scores = memory.new_full((count, beam_size), -torch.inf)
    scores[:, 0] = 0.0  # the beams are still equal: only the first may be continued
    return Beams(
        rows=torch.arange(count, device=source.device),
        limits=limits.clamp(min=1),
        ids=source.new_full((count, beam_size, 1), BOS),
        scores=scores,
        past=past,
        memory=of_memory,
        bias=bias,
    )


def extend(model: Transformer, beams: Beams) -> tuple[Tensor, Tensor, Tensor]:
    """Score all continuations of all beams; the best 2N of each sentence: scores, beams and subwords, each (B, 2N).

    Grows `beams.past` by one position.
    """
    _, width, length = beams.ids.shape
    logits, beams.past = model.step(beams.ids[:, :, -1], length - 1, beams.past, beams.memory, beams.bias)
    steps = logits.log_softmax(dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    steps[..., PAD] = steps[..., BOS] = -torch.inf  # no translation holds these
    totals = (beams.scores[:, :, None] + steps).flatten(1)  # (B, N*V)
    scores, places = best(totals, min(2 * width, totals.shape[1]))
    return scores, places // logits.shape[-1], places % logits.shape[-1]


def best(totals: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row (B, N*V), largest first, equal ones in the order of their places."""
    values, places = totals.topk(count)
    if bool(((totals >= values[:, -1:]).sum(1) > count).any() | (values[:, 1:] == values[:, :-1]).any()):
        values, places = totals.sort(dim=1, descending=True, stable=True)  # rare: topk promises no order among equals
    return values[:, :count], places[:, :count]


def collect_finished(
    beams: Beams, candidates: tuple[Tensor, Tensor, Tensor], finished: list[list[Hypothesis]], length_penalty: float
) -> None:
    """Add the hypotheses that end in </s> among the first N candidates to `finished`."""
    scores, parents, subwords = candidates
    width, length = beams.ids.shape[1:]  # length counts <s>, and so equals the subwords with </s>
    ended = (subwords[:, :width] == EOS) & (scores[:, :width] > -torch.inf)
    for place, number in ended.nonzero().tolist():
        ids = beams.ids[place, parents[place, number], 1:].tolist()
        total = float(scores[place, number])
        found = Hypothesis(tuple(ids), total / length_divisor(length, length_penalty), total)
        finished[int(beams.rows[place])].append(found)


def keep_best(beams: Beams, candidates: tuple[Tensor, Tensor, Tensor]) -> Beams:
    """The best N unfinished candidates become the beams."""
    scores, parents, subwords = candidates
    count, width, _ = beams.ids.shape
    # a stable sort brings the unfinished to the front and leaves them in their order
    chosen = (subwords == EOS).to(torch.uint8).sort(dim=1, stable=True).indices[:, :width]
    scores, parents, subwords = (part.gather(1, chosen) for part in (scores, parents, subwords))
    places = (torch.arange(count, device=parents.device)[:, None] * width + parents).flatten()
    ids = beams.ids.flatten(0, 1)[places].view(count, width, -1)
    return Beams(
        rows=beams.rows,
        limits=beams.limits,
        ids=torch.cat((ids, subwords[:, :, None]), dim=2),
        scores=scores,
        past=[(keys[places], values[places]) for keys, values in beams.past],
        memory=beams.memory,
        bias=beams.bias,
    )


def drop_settled(beams: Beams, finished: list[list[Hypothesis]], length_penalty: float) -> Beams:
    """Leave out sentences with N finished hypotheses or at their limit; one without any finished keeps what it has."""
    count, width, length = beams.ids.shape
    enough = torch.tensor([len(finished[row]) >= width for row in beams.rows.tolist()], device=beams.rows.device)
    at_limit = beams.limits < length  # length counts <s>: the next subword would be number `length`
    for place in (at_limit & ~enough).nonzero().flatten().tolist():
        row = int(beams.rows[place])
        if not finished[row]:
            divisor = length_divisor(length - 1, length_penalty)
            finished[row] += [
                Hypothesis(tuple(ids[1:]), score / divisor, score)
                for ids, score in zip(beams.ids[place].tolist(), beams.scores[place].tolist(), strict=True)
                if score > -torch.inf
            ]
    stay = (~(enough | at_limit)).nonzero().flatten()
    if len(stay) == count:
        return beams
    flat = (stay[:, None] * width + torch.arange(width, device=stay.device)).flatten()
    return Beams(
        rows=beams.rows[stay],
        limits=beams.limits[stay],
        ids=beams.ids[stay],
        scores=beams.scores[stay],
        past=[(keys[flat], values[flat]) for keys, values in beams.past],
        memory=[(keys[stay], values[stay]) for keys, values in beams.memory],
        bias=beams.bias[stay],
    )


def translate_ids(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    *,
    beam_size: int,
    length_penalty: float,
    extra_length: int,
    batch_tokens: int = 8192,
    progress: Callable[[int], object] = lambda count: None,
) -> list[list[Hypothesis]]:
    """Search for many sentences, of any lengths, in batches of beam_size x sentences x longest <= batch_tokens.

    sources: ids without </s>. The output limit is source subwords + extra_length, </s> counted (section
    6.1). progress(count) is called after each batch.
    """
    device = next(model.parameters()).device
    results: list[list[Hypothesis]] = [[] for _ in sources]
    order = sorted(range(len(sources)), key=lambda row: len(sources[row]))
    while order:
        longest = len(sources[order[-1]]) + 1
        size = max(1, batch_tokens // (beam_size * longest))
        rows, order = order[-size:], order[:-size]
        source = torch.full((len(rows), longest), PAD, dtype=torch.int64)
        for place, row in enumerate(rows):
            source[place, : len(sources[row]) + 1] = torch.tensor([*sources[row], EOS])
        limits = torch.tensor([len(sources[row]) + extra_length for row in rows])
        found = beam_search(
            model, source.to(device), limits.to(device), beam_size=beam_size, length_penalty=length_penalty
        )
        for row, hypotheses in zip(rows, found, strict=True):
            results[row] = hypotheses
        progress(len(rows))
    return results
