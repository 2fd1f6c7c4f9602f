"""How fast the models of experiments translate, measured side by side on this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from pipeline.experiments.revisions import Experiment, link_folder
from transformer.decoding.config import SearchConfig
from transformer.inference.translator import Translator

MODELS = (("data/model", ""), ("data/ct2", "float32/"))  # out and folder in it: for torch, and for CTranslate2
ROUNDS = 3  # all models in turn; the fastest round of each counts


def speeds(experiments: Sequence[Experiment]) -> list[list[float]]:
    """Sentences of the first test set that each model translates per second, by torch and by CTranslate2.

    The search has the settings of the experiment. Reading the model is not counted.
    """
    best = [[0.0] * len(MODELS) for _ in experiments]
    for _ in range(ROUNDS):
        for fastest, experiment in zip(best, experiments, strict=True):
            for place, model in enumerate(MODELS):
                fastest[place] = max(fastest[place], speed(experiment, *model))
    return best


def speed(experiment: Experiment, out: str, inner: str) -> float:
    """The sentences per second of one of the models of an experiment. out, inner: see MODELS."""
    sources = experiment.lines(experiment.raw("src"))
    settings = asdict(experiment.params.take(SearchConfig))
    with TemporaryDirectory() as folder:
        link_folder(experiment.folder(out), Path(folder), inner)
        translator = Translator.load(Path(folder))
        translator.translate(sources[:1], **settings)
        begin = time.perf_counter()
        translator.translate(sources, **settings)
        return len(sources) / (time.perf_counter() - begin)
