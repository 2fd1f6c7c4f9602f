"""The model folders of this project at work: beam search, sampling, forced decoding, attention."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from transformer.decoding.attention_maps import AttentionMaps, attention_maps
from transformer.decoding.beam_search import translate_ids
from transformer.decoding.forced_decoding import score_ids
from transformer.decoding.hypothesis import Hypothesis
from transformer.decoding.sampling import sample_ids
from transformer.model.transformer import Transformer
from transformer.model.weights import load_model

Ids = Sequence[Sequence[int]]


class TorchEngine:
    """One model, or several with one vocabulary as an ensemble. Ids without </s> go in and come out."""

    def __init__(self, models: Sequence[Transformer]):
        self.models = list(models)

    @classmethod
    def load(cls, folders: Sequence[Path]) -> TorchEngine:
        """Read model folders, onto the GPU if there is one."""
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return cls([load_model(folder).to(device) for folder in folders])

    def search(self, sources: Ids, **options: Any) -> list[list[Hypothesis]]:
        """See decoding.translate_ids."""
        return translate_ids(self.models, sources, **options)

    def sample(self, sources: Ids, **options: Any) -> list[list[Hypothesis]]:
        """See sampling.sample_ids."""
        return sample_ids(self.models, sources, **options)

    def score(self, sources: Ids, targets: Ids, **options: Any) -> list[list[float]]:
        """See forced.score_ids."""
        return score_ids(self.models, sources, targets, **options)

    def attention(self, source: Sequence[int], target: Sequence[int]) -> AttentionMaps:
        """Those of the first model; see forced.attention_maps."""
        return attention_maps(self.models[0], source, target)
