"""CTranslate2 as the engine of a translator: its search brought to the definition of transformer/decoding.py.

Its beam search takes the same steps; what differs is undone here. It divides log P by n^length_penalty, so it is asked
for all its hypotheses at penalty 1, its division is taken back and they are ranked by ours. At its limit it takes
unfinished hypotheses for finished ones, and it has one limit for a whole batch: a sentence that met one is translated
again with its own, and with room (`patience`) for all that ended and all that did not. What stays: near-ties may fall
the other way, and the probability of <pad> and <s>, next to nothing once a model is trained, goes to other subwords.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import ctranslate2

from transformer.cores import cores
from transformer.decoding.config import SearchConfig
from transformer.decoding.hypothesis import Hypothesis, ranked
from transformer.inference.engine import Ids, Progress
from transformer.text.vocabulary import BOS, EOS, PAD, SPECIALS, Vocabulary

END = SPECIALS[EOS]
BARRED = [[SPECIALS[PAD]], [SPECIALS[BOS]]]  # no translation holds these


class CTranslate2Engine:
    """A folder that transformer/export.py wrote."""

    def __init__(self, folder: Path, vocabulary: Vocabulary, positions: int):
        """positions: rows of the model's position table, which no sequence may exceed."""
        self.vocabulary, self.positions = vocabulary, positions
        device = "cuda" if ctranslate2.get_cuda_device_count() else "cpu"
        # small models gain more from batches side by side than from threads within one
        self.translator = ctranslate2.Translator(str(folder), device, inter_threads=cores(), intra_threads=1)

    def search(
        self,
        sources: Ids,
        config: SearchConfig,
        progress: Progress = lambda count: None,
        batch_tokens: int = 4096,
    ) -> list[list[Hypothesis]]:
        """As beam_search.translate_ids, for one model. Raises ValueError for a source longer than its position table.

        batch_tokens: source subwords of a batch times beam_size.
        """
        self._refuse_long(sources, config.extra_length)
        beam_size, limits = config.beam_size, [max(1, len(source) + config.extra_length) for source in sources]
        results: list[list[Hypothesis]] = [[] for _ in sources]
        waiting = sorted(range(len(sources)), key=lambda row: -limits[row])
        size = max(1, batch_tokens // beam_size)
        jobs = []
        while waiting:
            count = max(1, size // (len(sources[waiting[0]]) + 1))
            rows, waiting = waiting[:count], waiting[count:]
            jobs.append((rows, self._start([sources[row] for row in rows], limits[rows[0]], beam_size)))
        for rows, answers in jobs:
            for row, answer in zip(rows, answers, strict=True):
                found = answer.result()
                longest = max(map(len, found.hypotheses))
                if longest > limits[row] or any(tokens[-1:] != [END] for tokens in found.hypotheses):
                    found = self._start([sources[row]], limits[row], beam_size, patience=2)[0].result()
                results[row] = self._ours(found, config)
            progress(len(rows))
        return results

    def _refuse_long(self, sources: Ids, extra_length: int) -> None:
        """Raise ValueError for the first source that, or whose translation, needs more positions than there are."""
        for row, source in enumerate(sources):
            if len(source) + max(1, extra_length) > self.positions:
                raise ValueError(
                    f"sentence {row + 1} has {len(source):,} subwords; with extra_length={extra_length} this "
                    f"CTranslate2 model takes {self.positions - max(1, extra_length):,}; cut it, or use engine: torch"
                )

    def _start(self, sources: Sequence[Sequence[int]], limit: int, beam_size: int, patience: int = 1) -> list:
        """Begin to translate a batch; the answers to wait for. Greedy search (beam_size 1) knows no patience."""
        patience = patience if beam_size > 1 else 1
        words = self.vocabulary.subwords
        return self.translator.translate_batch(
            [[words[number] for number in source] for source in sources],
            asynchronous=True,
            beam_size=beam_size,
            num_hypotheses=beam_size * patience,
            patience=patience,
            length_penalty=1,
            max_input_length=0,
            min_decoding_length=0,
            max_decoding_length=limit,
            suppress_sequences=BARRED,
            return_scores=True,
            return_end_token=True,
        )

    def _ours(self, found: ctranslate2.TranslationResult, config: SearchConfig) -> list[Hypothesis]:
        """The hypotheses of an answer, ranked by our score; unfinished ones only where none ended."""
        pairs = [
            (self.vocabulary.ids(tokens), score * max(1, len(tokens)))
            for tokens, score in zip(found.hypotheses, found.scores, strict=True)
        ]
        ended = sorted(((ids[:-1], total) for ids, total in pairs if ids[-1:] == [EOS]), key=lambda one: len(one[0]))
        if len(ended) > config.beam_size:  # the search is over when so many have ended, at the same step or before
            ended = [one for one in ended if len(one[0]) <= len(ended[config.beam_size - 1][0])]
        return ranked(ended or pairs, bool(ended), config.length_penalty, config.beam_size)
