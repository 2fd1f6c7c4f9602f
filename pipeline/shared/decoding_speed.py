"""How fast the models of experiments translate, measured side by side on this machine."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from pipeline.shared.results import Experiment
from transformer.decoding.config import SearchConfig
from transformer.inference.translator import Translator

FOLDERS = ("data/model", "data/ct2/float32")  # the model for torch and the one for CTranslate2
ROUNDS = 3  # all models in turn; the fastest round of each counts


def speeds(experiments: Sequence[Experiment]) -> list[list[float]]:
    """Sentences of the first test set that each model translates per second, by torch and by CTranslate2.

    The search has the settings of the experiment. Reading the model is not counted.
    """
    best = [[0.0] * len(FOLDERS) for _ in experiments]
    for _ in range(ROUNDS):
        for found, one in zip(best, experiments, strict=True):
            for place, path in enumerate(FOLDERS):
                found[place] = max(found[place], speed(one, path))
    return best


def speed(experiment: Experiment, path: str) -> float:
    """The sentences per second of one of the models of an experiment."""
    sources = experiment.lines(experiment.raw("src"))
    settings = asdict(experiment.params.take(SearchConfig))
    with model_folder(experiment, path) as folder:
        translator = Translator.load(folder)
        translator.translate(sources[:1], **settings)
        begin = time.perf_counter()
        translator.translate(sources, **settings)
        return len(sources) / (time.perf_counter() - begin)


@contextmanager
def model_folder(experiment: Experiment, path: str) -> Iterator[Path]:
    """A folder with links to the files that DVC's cache has of an out, or of a folder in an out: data/OUT[/FOLDER]."""
    out, inner = "/".join(path.split("/")[:2]), "".join(f"{part}/" for part in path.split("/")[2:])
    with TemporaryDirectory() as folder:
        for name, place in experiment.folder(out).items():
            if name.startswith(inner):
                (Path(folder) / name.removeprefix(inner)).symlink_to(place.absolute())
        yield Path(folder)
