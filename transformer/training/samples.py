"""Greedy translations of a few fixed validation sentences at each validation: they show how a model learns."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from transformer.decoding.config import SearchConfig
from transformer.training.train_step import Trainer
from transformer.training.validation import ValidText, greedy_translations

SENTENCES = 3
# Samples must cost less than 1% of a training. A model that has learnt little does not end its translations, so they
# are cut off soon, and the longer half of the sentences is left out.
SHORT = SearchConfig(beam_size=1, length_penalty=0.0, extra_length=5)


def sampled_rows(lengths: np.ndarray) -> list[int]:
    """The numbers of SENTENCES validation pairs, fewer if there are few: evenly spaced among the shorter half of them.

    lengths: subwords of each source.
    """
    order = np.argsort(lengths, kind="stable")
    places = sorted({k * len(order) // (2 * SENTENCES) for k in range(1, SENTENCES + 1)})
    return order[places].tolist()


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
    for place, row in enumerate(sampled_rows(lengths)):
        line = valid.references[row], valid.sources[row], row + 1
        writer.writerows([step, translations[str(step)][place], *line] for step in steps)
    return text.getvalue()
