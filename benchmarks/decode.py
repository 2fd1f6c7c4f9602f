"""Translation speed of a model folder with torch and with CTranslate2, in one process, measured in turns.

python -m benchmarks.decode data/model data/raw/test.src --beam-size 1 4 --batch 1 128 --json speed.json
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from statistics import median

from benchmarks.table import text_table
from pipeline.workflow.stage import require, run
from transformer.files import chunks, read_lines
from transformer.inference.translator import Translator

COLUMNS = {
    "engine": "engine",
    "beam_size": "beam",
    "batch": "batch",
    "lines_per_second": "lines/s",
    "ratio": "times the speed of torch",
}


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("model", type=Path, help="model folder with weights and the export for CTranslate2")
    add("text", type=Path, help="lines to translate")
    add("--beam-size", type=int, nargs="+", default=[1, 4], metavar="N")
    add("--batch", type=int, nargs="+", default=[1, 128], metavar="N", help="lines at a time")
    add("--rounds", type=int, default=5, metavar="N")
    add("--seconds", type=float, default=3.0, metavar="S", help="length of a round; its last batch is finished")
    add("--json", type=Path, metavar="FILE", help="write the rows")
    return parser.parse_args()


def lines_per_second(
    translator: Translator, batches: list[list[str]], beam_size: int, seconds: float
) -> tuple[float, int]:
    """How many lines a translator translates in a second, and how many batches until the time has passed."""
    start, lines, done = time.perf_counter(), 0, 0
    while done < len(batches) and (not done or time.perf_counter() - start < seconds):
        translator.translate(batches[done], beam_size=beam_size)
        lines += len(batches[done])
        done += 1
    return lines / (time.perf_counter() - start), done


def measure(asked: argparse.Namespace, translators: dict[str, Translator], beam_size: int, batch: int) -> list[dict]:
    """A row for each engine: the median of its rounds, which take turns on the same lines."""
    every = [*chunks(read_lines(asked.text), batch)]
    rounds: dict[str, list[float]] = {engine: [] for engine in translators}
    for number in range(asked.rounds + 1):
        batches, seconds = every, asked.seconds * min(number, 1)  # the first round is not timed
        for engine, translator in translators.items():
            rate, done = lines_per_second(translator, batches, beam_size, seconds)
            batches, seconds = batches[:done], math.inf  # those of torch, the slowest
            rounds[engine] += [rate] * min(number, 1)
    speed = {engine: median(rates) for engine, rates in rounds.items()}
    return [
        {
            "engine": engine,
            "beam_size": beam_size,
            "batch": batch,
            "lines_per_second": speed[engine],
            "ratio": speed[engine] / speed["torch"],
            "rounds": rounds[engine],
        }
        for engine in translators
    ]


def main() -> None:
    asked = options()
    require(asked.model, asked.text)
    translators = {engine: Translator.load(asked.model, engine=engine) for engine in ("torch", "ctranslate2")}
    rows = [
        row for batch in asked.batch for beam in asked.beam_size for row in measure(asked, translators, beam, batch)
    ]
    print(text_table(rows, COLUMNS))
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run(main)
