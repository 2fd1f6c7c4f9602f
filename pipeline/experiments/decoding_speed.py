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

ENGINES = ("torch", "ctranslate2")
ROUNDS = 3  # all models in turn; the fastest round of each counts


def speeds(experiments: Sequence[Experiment]) -> list[list[float]]:
    """Sentences of the first test set that each model translates per second, by torch and by CTranslate2.

    The search has the settings of the experiment. Reading the model is not counted.
    """
    best = [[0.0] * len(ENGINES) for _ in experiments]
    for _ in range(ROUNDS):
        for fastest, experiment in zip(best, experiments, strict=True):
            for place, engine in enumerate(ENGINES):
                fastest[place] = max(fastest[place], speed(experiment, engine))
    return best


def speed(experiment: Experiment, engine: str) -> float:
    """The sentences per second of the model of an experiment by one of ENGINES."""
    sources = experiment.lines(experiment.raw("src"))
    settings = asdict(experiment.params.take(SearchConfig))
    with TemporaryDirectory() as folder:
        link_folder(experiment.folder("data/model"), Path(folder))
        translator = Translator.load(Path(folder), engine=engine)
        translator.translate(sources[:1], **settings)
        begin = time.perf_counter()
        translator.translate(sources, **settings)
        return len(sources) / (time.perf_counter() - begin)
