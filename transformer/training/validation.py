"""The two validations of a training: the loss on the validation pairs, and BLEU of greedy translations of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch

from transformer.decoding.beam_search import translate_ids
from transformer.decoding.config import SearchConfig
from transformer.evaluation.scores import bleu
from transformer.training.batches import split_by_tokens
from transformer.training.loss import cross_entropy
from transformer.training.train_step import Trainer

IdsToText = Callable[[Iterable[int]], str]  # the line of text that ids spell
GREEDY = SearchConfig(beam_size=1, length_penalty=0.0)


@torch.inference_mode()
def valid_loss(trainer: Trainer) -> float:
    """Negative log-likelihood of the validation pairs, in nats per target token, without smoothing and dropout.

    Each process computes a part of the batches; the result is the same on all processes.
    """
    trainer.model.eval()
    pairs, world = trainer.valid_pairs, trainer.world
    order = np.lexsort((pairs.source_lengths, pairs.longest))
    total = torch.zeros((), dtype=torch.float64, device=world.device)
    for number, rows in enumerate(split_by_tokens(pairs.longest[order], trainer.config.device_tokens)):
        if number % world.size == world.rank:
            total += cross_entropy(*trainer.states_to_predict(pairs, order[rows]))
    return float(world.sum(total)) / int(pairs.target_lengths.sum())


def valid_bleu(trainer: Trainer, to_text: IdsToText) -> float:
    """sacreBLEU (cased, 13a) of greedy translations of the validation sources.

    Each process translates a part of the sources; the result is the same on all processes. The references are spelled
    from ids, so they equal the real lines except for unknown subwords.
    """
    model, pairs, world = trainer.model, trainer.valid_pairs, trainer.world
    sources, targets = ([ids[:-1].tolist() for ids in side] for side in (pairs.source, pairs.target))  # without </s>
    own = range(world.rank, len(sources), world.size)
    model.eval()
    compute, model.compute = model.compute, None  # sums of log-probabilities in bfloat16 would be imprecise
    found = translate_ids([model], [sources[row] for row in own], GREEDY)
    model.compute = compute
    lines = {row: to_text(hypotheses[0].ids) for row, hypotheses in zip(own, found, strict=True)}
    all_lines = {row: line for part in world.gather(lines) for row, line in part.items()}
    return bleu([all_lines[row] for row in range(len(sources))], [to_text(ids) for ids in targets])
