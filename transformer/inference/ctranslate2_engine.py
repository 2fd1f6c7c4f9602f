"""CTranslate2 as the engine of a translator, with the results that decoding/beam_search.py defines.

With length_penalty 0 and num_hypotheses = beam_size, CTranslate2's beam search is the same: it ends when beam_size
hypotheses have ended and the best candidate of a step has, and keeps those with the largest log P, which is its score.
They are ranked by our score here. One difference is corrected: it has one length limit per batch, and at the limit it
counts unfinished hypotheses as finished. A sentence with fewer than beam_size finished ones within its own limit is
translated again: alone, with this limit, and with `patience` 2, which makes room for all finished and all unfinished
hypotheses.
Two other differences remain. Near-ties may be decided the other way. The probability of <pad> and <s>, almost 0 in a
trained model, is given to the other subwords.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import ctranslate2

from transformer.cores import cores
from transformer.decoding.config import SearchConfig
from transformer.decoding.hypothesis import Hypothesis, ranked
from transformer.files import Mistake
from transformer.inference.engine import Check, Ids, Progress
from transformer.model_folder import POSITIONS
from transformer.text.marks import join
from transformer.text.vocabulary import BOS, EOS, PAD, SPECIALS, Vocabulary

END = SPECIALS[EOS]
FORBIDDEN = [[SPECIALS[PAD]], [SPECIALS[BOS]]]  # sequences that no translation may contain
PAUSE = 0.001  # seconds between two looks of the main thread at whether a batch is done


class CTranslate2Engine:
    """The model in a folder that ctranslate2_export.py wrote, on the GPU if there is one."""

    def __init__(self, folder: Path, vocabulary: Vocabulary, threads: int = 0):
        """threads: how many searches are computed at a time; default: one, of which each core computes a part."""
        self.vocabulary, self.threads = vocabulary, threads or cores()
        self.parts = 1 if threads else self.threads  # that few sources are divided into
        device = "cuda" if has_gpu() else "cpu"
        try:
            # A thread for each batch, all cores for several. Threads that share a batch of a small model are slower.
            self.translator = ctranslate2.Translator(str(folder), device, inter_threads=self.threads, intra_threads=1)
        except RuntimeError as error:
            raise Mistake(
                f"{folder}: CTranslate2 cannot read this model ({error}). Copy the folder again, or "
                "export the model again."
            ) from None

    def search(
        self,
        sources: Ids,
        config: SearchConfig,
        progress: Progress = lambda count: None,
        before_step: Check = lambda: None,
        batch_tokens: int = 4096,
    ) -> list[list[Hypothesis]]:
        """Sources to their hypotheses; see beam_search.translate_ids.

        batch_tokens: source subwords of a batch times beam_size. At most two batches a core have started when
        before_step ends the search. Raises Mistake for a source that needs more positions than the table has.
        """
        self._check_lengths(sources, config.extra_length)
        limits = [limit(source, config.extra_length) for source in sources]
        results: list[list[Hypothesis]] = [[] for _ in sources]
        jobs: deque[tuple[list[int], list]] = deque()

        def finish_first() -> None:
            rows, answers = jobs.popleft()
            for row, answer in zip(rows, answers, strict=True):
                result = awaited(answer, before_step)
                if not self._settled(result, limits[row], config.beam_size):
                    (again,) = self._start([sources[row]], limits[row], config.beam_size, patience=2)
                    result = awaited(again, before_step)
                results[row] = self._hypotheses(result, config)
            progress(len(rows))

        for rows in batches(sources, max(1, batch_tokens // config.beam_size), self.parts):
            texts = [sources[row] for row in rows]
            jobs.append((rows, self._start(texts, limits[rows[0]], config.beam_size)))
            if len(jobs) > 2 * self.threads:
                finish_first()
        while jobs:
            finish_first()
        return results

    def takes(self, source: Sequence[int], extra_length: int) -> bool:
        """Whether the position table has enough rows for a source and its longest translation."""
        return limit(source, max(1, extra_length)) <= POSITIONS

    def _check_lengths(self, sources: Ids, extra_length: int) -> None:
        """Raise Mistake for the first source that needs more positions than the position table has."""
        for source in sources:
            if not self.takes(source, extra_length):
                start = join(self.vocabulary.subwords[number] for number in source[:12])
                raise Mistake(
                    f"The sentence {start!r}... has {len(source):,} subwords. With extra_length={extra_length} "
                    f"CTranslate2 takes at most {POSITIONS - max(1, extra_length):,}. Shorten the sentence, or use "
                    "engine: torch."
                )

    @staticmethod
    def _settled(result: ctranslate2.TranslationResult, most: int, beam_size: int) -> bool:
        """Whether beam_size hypotheses ended in </s> within `most` subwords."""
        ended = [tokens for tokens, _ in filled_hypotheses(result) if tokens[-1:] == [END] and len(tokens) <= most]
        return len(ended) >= beam_size

    def _start(self, sources: Ids, most: int, beam_size: int, patience: int = 1) -> list:
        """Start to translate a batch, to at most `most` subwords. Returns one asynchronous result per source.

        patience: the search ends when beam_size * patience hypotheses are finished. Greedy search has no patience.
        """
        patience = patience if beam_size > 1 else 1
        words = self.vocabulary.subwords
        return self.translator.translate_batch(
            [[words[number] for number in source] for source in sources],
            asynchronous=True,
            beam_size=beam_size,
            num_hypotheses=beam_size * patience,
            patience=patience,
            length_penalty=0,
            max_input_length=0,
            min_decoding_length=0,
            max_decoding_length=most,
            suppress_sequences=FORBIDDEN,
            return_scores=True,
            return_end_token=True,
        )

    def _hypotheses(self, result: ctranslate2.TranslationResult, config: SearchConfig) -> list[Hypothesis]:
        """A result of CTranslate2 to hypotheses, ranked by our score, the unfinished ones after the finished ones."""
        pairs = [(self.vocabulary.ids(tokens), score) for tokens, score in filled_hypotheses(result)]
        finished = [(ids[:-1], total) for ids, total in pairs if ids[-1:] == [EOS]][: config.beam_size]
        unfinished = [(ids, total) for ids, total in pairs if ids[-1:] != [EOS]]
        return ranked(finished, unfinished, config.length_penalty, config.beam_size)


def filled_hypotheses(result: ctranslate2.TranslationResult) -> list[tuple[list[str], float]]:
    """The hypotheses of a result and their scores, without those that fill up a beam with more places than texts."""
    pairs = zip(result.hypotheses, result.scores, strict=True)
    return [(tokens, score) for tokens, score in pairs if score > -1e30]


def has_gpu() -> bool:
    """Whether CTranslate2 sees a CUDA device."""
    return ctranslate2.get_cuda_device_count() > 0


def limit(source: Sequence[int], extra_length: int) -> int:
    """The most subwords of a translation, </s> included."""
    return max(1, len(source) + extra_length)


def batches(sources: Ids, size: int, parts: int) -> Iterator[list[int]]:
    """Yield the numbers of the sources of each batch: the longest first, sentences x (longest + 1) <= size, or one.

    Few sources are divided into so many parts.
    """
    order = sorted(range(len(sources)), key=lambda row: -len(sources[row]))
    most, start = -(-len(order) // parts), 0
    while start < len(order):
        count = max(1, min(most, size // (len(sources[order[start]]) + 1)))
        yield order[start : start + count]
        start += count


def awaited(answer: ctranslate2.AsyncTranslationResult, check: Check) -> ctranslate2.TranslationResult:
    """The result of a batch. `check` is called before it, and meanwhile in the main thread, which gets signals."""
    check()
    while threading.current_thread() is threading.main_thread() and not answer.done():
        time.sleep(PAUSE)
        check()
    return answer.result()
