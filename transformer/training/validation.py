"""The validations of a training: the loss on the validation pairs, BLEU of greedy translations of them, and samples."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from transformer.decoding.beam_search import translate_ids
from transformer.decoding.config import SearchConfig
from transformer.evaluation.bleu import bleu
from transformer.text.pairs import Pairs
from transformer.training.batches import deal, padded_tokens, split_by_tokens
from transformer.training.distributed import Stopped
from transformer.training.loss import cross_entropy
from transformer.training.train_step import Trainer, predictions

GREEDY = SearchConfig(beam_size=1, length_penalty=0.0)


@dataclass(frozen=True)
class ValidText:
    """The text of the validation pairs, for BLEU and samples.

    to_text: the line that target ids spell. sources, references: the real lines of both sides. language: of the
    references; it chooses how sacreBLEU splits them into tokens.
    """

    to_text: Callable[[Iterable[int]], str]
    sources: Sequence[str]
    references: Sequence[str]
    language: str

    @classmethod
    def build_from_ids(cls, pairs: Pairs) -> ValidText:
        """The text of pairs without text: each id is a word, `w5` for 5."""

        def words(ids: Iterable[int]) -> str:
            return " ".join(f"w{number}" for number in ids)

        sources, references = ([words(ids[:-1]) for ids in side] for side in (pairs.source, pairs.target))
        return cls(words, sources, references, "en")


@torch.inference_mode()
def valid_loss(trainer: Trainer, stop_requested: Callable[[], bool] = lambda: False) -> float:
    """Negative log-likelihood of the validation pairs, in nats per target token, without smoothing and dropout.

    Each process computes a part of the batches; the result is the same on all processes. Raises Stopped in all
    processes when stop_requested() is true in one; it is called before each batch and at the end.
    """
    trainer.model.eval()
    pairs, world = trainer.valid_pairs, trainer.world
    order = np.lexsort((pairs.source_lengths, pairs.longest))
    parts = [order[rows] for rows in split_by_tokens(pairs.longest[order], trainer.config.device_tokens)]
    total = torch.zeros((), dtype=torch.float64, device=world.device)
    stop = False
    for number in deal(padded_tokens(pairs, parts), world.size)[world.rank]:
        if stop := stop_requested():
            break
        total += cross_entropy(*predictions(trainer.model, trainer.batch(pairs, parts[number])))
    if world.any(stop or stop_requested()):
        raise Stopped
    return float(world.sum(total)) / int(pairs.target_lengths.sum())


def valid_bleu(trainer: Trainer, valid: ValidText, stop_requested: Callable[[], bool] = lambda: False) -> float:
    """sacreBLEU of greedy translations of the validation sources against the real target lines.

    The result is the same on all processes. Raises Stopped; see `greedy_translations`.
    """
    lines = greedy_translations(trainer, valid, range(len(trainer.valid_pairs)), GREEDY, stop_requested)
    return bleu(lines, valid.references, valid.language)


def greedy_translations(
    trainer: Trainer, valid: ValidText, rows: Sequence[int], config: SearchConfig, stop_requested: Callable[[], bool]
) -> list[str]:
    """The greedy translations of some validation sources, as text. rows: numbers of the validation pairs.

    Each process translates a part of them; the result is the same on all processes. Raises Stopped in all processes
    when stop_requested() is true in one; it is called before each step of decoding.
    """
    model, world, pairs = trainer.model, trainer.world, trainer.valid_pairs.source
    own = rows[world.rank :: world.size]

    def check() -> None:
        if stop_requested():
            raise Stopped

    compute, model.compute = model.compute, None  # sums of log-probabilities in bfloat16 would be imprecise
    try:
        check()  # this process may have no sentence
        sources = [pairs.ids[pairs.starts[row] : pairs.starts[row + 1] - 1].tolist() for row in own]  # without </s>
        translations = translate_ids([model], sources, config, before_step=check)
        lines = [valid.to_text(hypotheses[0].ids) for hypotheses in translations]
    except Stopped:
        lines = None
    finally:
        model.compute = compute
    parts = world.gather(lines)
    if None in parts:
        raise Stopped
    return [parts[index % world.size][index // world.size] for index in range(len(rows))]


SENTENCES = 3
# Samples must cost less than 1% of a training. A model that has learnt little does not end its translations, so they
# are cut off soon, and the longer half of the sentences is left out.
SHORT = SearchConfig(beam_size=1, length_penalty=0.0, extra_length=5)


def sampled_rows(lengths: np.ndarray) -> list[int]:
    """The numbers of SENTENCES validation pairs, fewer if there are few: evenly spaced among the shorter half of them.

    lengths: subwords of each source.
    """
    order = np.argsort(lengths, kind="stable")
    positions = sorted({k * len(order) // (2 * SENTENCES) for k in range(1, SENTENCES + 1)})
    return order[positions].tolist()


def samples(trainer: Trainer, valid: ValidText, stop_requested: Callable[[], bool]) -> list[str]:
    """The translations of the sampled rows by the model as it is now. Raises Stopped; see `greedy_translations`."""
    return greedy_translations(trainer, valid, sampled_rows(trainer.valid_pairs.source_lengths), SHORT, stop_requested)


def table(translations: Mapping[str, Sequence[str]], lengths: np.ndarray, valid: ValidText, save_every: int) -> str:
    """The samples of a training as CSV: for each sampled sentence, its translation at each validation.

    translations: step -> the result of `samples`. lengths: see `sampled_rows`. save_every: updates between validations.
    Other steps, which a training has if it was resumed with another save_every, are left out. The column `sentence` is
    the line in the validation text, from 1.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["step", "translation", "reference", "source", "sentence"])
    steps = sorted(step for step in map(int, translations) if step % save_every == 0)
    for index, row in enumerate(sampled_rows(lengths)):
        line = valid.references[row], valid.sources[row], row + 1
        writer.writerows([step, translations[str(step)][index], *line] for step in steps)
    return text.getvalue()
