"""CTranslate2 as the engine of a translator, with the results that decoding/beam_search.py defines.

CTranslate2's beam search takes the same steps. Three differences are corrected here:
- Its score divides log P by n^length_penalty. Log P is computed back from its scores, and the hypotheses are ranked by
  our score.
- The last step may finish several hypotheses, so that there are more than beam_size. CTranslate2 returns the best
  beam_size of them by its own score. With length_penalty -1 that score is n log P, so a hypothesis that is left out has
  a lower log P than each returned one that is as long or longer. The last step has the longest, and one of them is
  always returned. So the best by our score is never left out. For nearly all others to be there, `patience` 2 asks for
  twice as many, which takes about a quarter more time.
- It has one length limit per batch, and at the limit it counts unfinished hypotheses as finished. A sentence with fewer
  than beam_size finished hypotheses within its own limit is translated again: alone, with this limit, and with
  `patience` 2, which makes room for all finished and all unfinished hypotheses.
Two other differences remain. Near-ties may be decided the other way. The probability of <pad> and <s>, almost 0 in a
trained model, is given to the other subwords.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import ctranslate2

from transformer.cores import cores
from transformer.decoding.config import SearchConfig
from transformer.decoding.hypothesis import Hypothesis, ranked
from transformer.inference.engine import Check, Ids, Progress
from transformer.text.marks import join
from transformer.text.vocabulary import BOS, EOS, PAD, SPECIALS, Vocabulary

END = SPECIALS[EOS]
FORBIDDEN = [[SPECIALS[PAD]], [SPECIALS[BOS]]]  # sequences that no translation may contain


class CTranslate2Engine:
    """The model of a folder that ctranslate2_export.py wrote."""

    def __init__(self, folder: Path, vocabulary: Vocabulary, positions: int):
        """positions: rows of the model's position table, the longest sequence that it can compute."""
        self.vocabulary, self.positions = vocabulary, positions
        device = "cuda" if ctranslate2.get_cuda_device_count() else "cpu"
        try:
            # for small models, several batches in parallel are faster than several threads in one batch
            self.translator = ctranslate2.Translator(str(folder), device, inter_threads=cores(), intra_threads=1)
        except RuntimeError as error:
            raise ValueError(
                f"{folder}: CTranslate2 cannot read this model ({error}). Copy the folder again, or "
                "export the model again."
            ) from None

    def search(
        self,
        sources: Ids,
        config: SearchConfig,
        progress: Progress = lambda count: None,
        before_step: Check = lambda: None,
        best_only: bool = False,
        batch_tokens: int = 4096,
    ) -> list[list[Hypothesis]]:
        """Sources to their hypotheses; see beam_search.translate_ids.

        best_only: only the first hypothesis of each source must be right; see the top of this module.
        batch_tokens: source subwords of a batch times beam_size. Raises ValueError for a source that needs more
        positions than the position table has.
        """
        self._check_lengths(sources, config.extra_length)
        beam_size, limits = config.beam_size, [max(1, len(source) + config.extra_length) for source in sources]
        results: list[list[Hypothesis]] = [[] for _ in sources]
        order = sorted(range(len(sources)), key=lambda row: -limits[row])
        size, start, jobs, patience = max(1, batch_tokens // beam_size), 0, [], 1 if best_only else 2
        while start < len(order):
            count = max(1, size // (len(sources[order[start]]) + 1))
            rows, start = order[start : start + count], start + count
            jobs.append((rows, self._start([sources[row] for row in rows], limits[rows[0]], beam_size, patience)))
        for rows, answers in jobs:
            before_step()
            for row, answer in zip(rows, answers, strict=True):
                result = answer.result()
                finished = [
                    tokens for tokens in result.hypotheses if tokens[-1:] == [END] and len(tokens) <= limits[row]
                ]
                if len(finished) < beam_size:
                    result = self._start([sources[row]], limits[row], beam_size, patience=2)[0].result()
                results[row] = self._hypotheses(result, config)
            progress(len(rows))
        return results

    def _check_lengths(self, sources: Ids, extra_length: int) -> None:
        """Raise ValueError for the first source whose longest translation needs more positions than the table has."""
        for source in sources:
            if len(source) + max(1, extra_length) > self.positions:
                start = join(self.vocabulary.subwords[number] for number in source[:12])
                raise ValueError(
                    f"The sentence {start!r}... has {len(source):,} subwords. With extra_length={extra_length} this "
                    f"CTranslate2 model takes at most {self.positions - max(1, extra_length):,}. Shorten the sentence, "
                    "or use engine: torch."
                )

    def _start(self, sources: Sequence[Sequence[int]], limit: int, beam_size: int, patience: int) -> list:
        """Start to translate a batch. Returns one asynchronous result per source.

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
            length_penalty=-1,
            max_input_length=0,
            min_decoding_length=0,
            max_decoding_length=limit,
            suppress_sequences=FORBIDDEN,
            return_scores=True,
            return_end_token=True,
        )

    def _hypotheses(self, result: ctranslate2.TranslationResult, config: SearchConfig) -> list[Hypothesis]:
        """A result of CTranslate2 to hypotheses, ranked by our score, the unfinished ones after the finished ones."""
        pairs = [
            (self.vocabulary.ids(tokens), score / max(1, len(tokens)))
            for tokens, score in zip(result.hypotheses, result.scores, strict=True)
        ]
        finished = [(ids[:-1], total) for ids, total in pairs if ids[-1:] == [EOS]]
        finished.sort(key=lambda pair: len(pair[0]))
        if len(finished) > config.beam_size:  # our search ends at the step that finishes hypothesis number beam_size
            longest = len(finished[config.beam_size - 1][0])
            finished = [(ids, total) for ids, total in finished if len(ids) <= longest]
        unfinished = [(ids, total) for ids, total in pairs if ids[-1:] != [EOS]]
        return ranked(finished, unfinished, config.length_penalty, config.beam_size)
