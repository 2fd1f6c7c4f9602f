"""The torch engine: search, sampling, scores and attention maps with the models of model folders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

import torch

from transformer.decoding.attention_maps import AttentionMaps, attention_maps
from transformer.decoding.beam_search import translate_ids
from transformer.decoding.config import SamplingConfig, SearchConfig
from transformer.decoding.forced_decoding import score_ids
from transformer.decoding.hypothesis import Hypothesis
from transformer.decoding.sampling import sample_ids
from transformer.inference.engine import Check, Ids, Progress
from transformer.model.transformer import Transformer
from transformer.model.weights import load_model

_ALONE = Lock()


class TorchEngine:
    """One model, or several with one vocabulary as an ensemble. All ids are without </s>.

    Of several threads, one computes at a time.
    """

    def __init__(self, models: Sequence[Transformer]):
        self.models = list(models)

    @classmethod
    def load(cls, folders: Sequence[Path]) -> TorchEngine:
        """Load the models of model folders, onto the GPU if there is one."""
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return cls([load_model(folder).to(device) for folder in folders])

    def search(
        self, sources: Ids, config: SearchConfig, progress: Progress, before_step: Check
    ) -> list[list[Hypothesis]]:
        """Sources to their hypotheses; see beam_search.translate_ids."""
        with threads_for(sources):
            return translate_ids(self.models, sources, config, progress=progress, before_step=before_step)

    def sample(self, sources: Ids, config: SamplingConfig, progress: Progress) -> list[list[Hypothesis]]:
        """Sources to random translations; see sampling.sample_ids."""
        with threads_for(sources):
            return sample_ids(self.models, sources, config, progress=progress)

    def score(self, sources: Ids, targets: Ids, progress: Progress) -> list[list[float]]:
        """Sources and targets to log P of each subword; see forced_decoding.score_ids."""
        with threads_for(sources):
            return score_ids(self.models, sources, targets, progress=progress)

    def attention(self, source: Sequence[int], target: Sequence[int]) -> AttentionMaps:
        """The attention weights of the first model on one pair; see attention_maps.attention_maps."""
        with threads_for([source]):
            return attention_maps(self.models[0], source, target)


@contextmanager
def threads_for(sources: Ids) -> Iterator[None]:
    """In this block torch computes one sentence with one thread. Of several callers, one is in the block at a time.

    The products of one sentence are too small to share: measured on two busy cores, tiny model, 0.2 s with one thread,
    more than 1 s with two. The number of threads is that of the process, and attention_maps adds hooks to the model.
    """
    with _ALONE:
        threads = torch.get_num_threads()
        torch.set_num_threads(1 if len(sources) == 1 else threads)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
