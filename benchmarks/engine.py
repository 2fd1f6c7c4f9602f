"""The engine ctranslate2 of the stage translate against direct calls of CTranslate2, on a trained model."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from transformer.files import read_lines
from transformer.inference.ctranslate2_engine import CTranslate2Engine
from transformer.inference.ctranslate2_export import export
from transformer.inference.translator import Translator


def engine_rows(model: Path, text: Path, beams: list[int], rounds: int) -> list[dict]:
    """Rows of two programs for each beam size, their ratio being to `pipeline`.

    pipeline: from text to text, with this project's definition of the search. bare: from subwords to subwords, with
    CTranslate2's own definition.
    """
    lines = list(read_lines(text))
    with tempfile.TemporaryDirectory() as name:
        export(model, Path(name, "ct2"), "float32")
        translator = Translator.load(Path(name, "ct2"))
        words = translator.subwords(lines)
        assert isinstance(translator.engine, CTranslate2Engine)
        bare = translator.engine.translator  # with the same number of threads
        rows = []
        for beam_size in beams:
            programs: dict[str, Callable[[], object]] = {
                "pipeline": lambda beam=beam_size: translator.translate(lines, beam_size=beam),
                "bare": lambda beam=beam_size: bare.translate_batch(words, beam_size=beam, max_batch_size=64),
            }
            seconds: dict[str, list[float]] = {program: [] for program in programs}
            for number in range(rounds + 1):
                for program, translate in programs.items():
                    start = time.perf_counter()
                    translate()
                    if number:  # the first round warms up
                        seconds[program].append(time.perf_counter() - start)
            rows += [
                {
                    "program": program,
                    "precision": "float32",
                    "beam_size": beam_size,
                    "batch": "all",
                    "sentences_per_second": len(lines) / median(taken),
                    "ratio": median(a / b for a, b in zip(seconds[program], seconds["pipeline"], strict=True)),
                }
                for program, taken in seconds.items()
            ]
    return rows
