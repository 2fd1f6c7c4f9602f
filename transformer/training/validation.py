"""BLEU of the model in training, on the validation pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sacrebleu.metrics.bleu import BLEU

from transformer.decoding.beam_search import translate_ids
from transformer.model.transformer import Transformer
from transformer.text.pairs import Pairs
from transformer.training.distributed import World

Text = Callable[[Iterable[int]], str]


def valid_bleu(model: Transformer, pairs: Pairs, world: World, text: Text) -> float:
    """sacreBLEU (cased, 13a) of greedy translations, each process translating its share; the same on every process.

    text turns ids into a line. References are made from ids, too: the real lines but for unknown subwords.
    """
    sources, targets = ([ids[:-1].tolist() for ids in side] for side in (pairs.source, pairs.target))  # less </s>
    share = range(world.rank, len(sources), world.size)
    model.eval()
    compute, model.compute = model.compute, None
    found = translate_ids([model], [sources[row] for row in share], beam_size=1, length_penalty=0.0, extra_length=50)
    model.compute = compute
    lines = {row: text(hypotheses[0].ids) for row, hypotheses in zip(share, found, strict=True)}
    merged = {row: line for part in world.gathered(lines) for row, line in part.items()}
    hypotheses = [merged[row] for row in range(len(sources))]
    return BLEU().corpus_score(hypotheses, [[text(ids) for ids in targets]]).score
