"""Both validations of a training: the loss on the validation pairs, and BLEU of greedy translations of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch

from transformer.decoding.beam_search import translate_ids
from transformer.decoding.config import SearchConfig
from transformer.evaluation.scores import bleu
from transformer.training.batches import cut
from transformer.training.loss import cross_entropy
from transformer.training.train_step import Trainer

Text = Callable[[Iterable[int]], str]  # ids -> the line that they spell
GREEDY = SearchConfig(beam_size=1, length_penalty=0.0)


@torch.inference_mode()
def valid_loss(trainer: Trainer) -> float:
    """Negative log-likelihood on the validation pairs, in nats per target token: no smoothing, no dropout.

    Each process computes its share of the batches; the result is the same on all of them.
    """
    trainer.model.eval()
    pairs, world = trainer.valid_pairs, trainer.world
    order = np.lexsort((pairs.source_lengths, pairs.longest))
    total = torch.zeros((), dtype=torch.float64, device=world.device)
    for number, run in enumerate(cut(pairs.longest[order], trainer.config.device_tokens)):
        if number % world.size == world.rank:
            total += cross_entropy(*trainer.states_to_predict(pairs, order[run]))
    return float(world.sum(total)) / int(pairs.target_lengths.sum())


def valid_bleu(trainer: Trainer, text: Text) -> float:
    """sacreBLEU (cased, 13a) of greedy translations of the validation sources.

    Each process translates its share; the result is the same on all of them. The references are made from ids, so they
    are the real lines except for unknown subwords.
    """
    model, pairs, world = trainer.model, trainer.valid_pairs, trainer.world
    sources, targets = ([ids[:-1].tolist() for ids in side] for side in (pairs.source, pairs.target))  # without </s>
    share = range(world.rank, len(sources), world.size)
    model.eval()
    compute, model.compute = model.compute, None  # sums of log-probabilities in bfloat16 would be rough
    found = translate_ids([model], [sources[row] for row in share], GREEDY)
    model.compute = compute
    lines = {row: text(hypotheses[0].ids) for row, hypotheses in zip(share, found, strict=True)}
    merged = {row: line for part in world.gathered(lines) for row, line in part.items()}
    return bleu([merged[row] for row in range(len(sources))], [text(ids) for ids in targets])
