"""Stage inspect: write a page about the corpus, for a look before training: `dvc repro inspect`.

Reads   data/filtered: filter.json, train.{src,tgt}, train.lines.npy; data/ids: corpus.json, train.files.json;
        data/subwords.json
Writes  reports/data.html
Params  corpus: it names the page
"""

from __future__ import annotations

from argparse import Namespace
from itertools import islice
from typing import Any

import numpy as np

from pipeline.workflow.params import Params
from pipeline.workflow.stage import arguments, corpus_name, run
from transformer.evaluation.texts import read, read_table
from transformer.files import position_of, read_json, read_lines, write_text
from transformer.reporting.data_page import data_page

SAMPLES = 10


def main() -> None:
    paths = arguments(
        __doc__, filtered="data/filtered", ids="data/ids", subwords="data/subwords.json", page="reports/data.html"
    )
    params = Params.load(paths.params)
    filtered, corpus, subwords = (
        read(path, read_table) for path in (paths.filtered / "filter.json", paths.ids / "corpus.json", paths.subwords)
    )
    name = corpus_name({"corpus": params.corpus})
    write_text(paths.page, data_page(name, corpus, filtered, subwords, samples(paths, filtered["kept"])))
    print(f"written to {paths.page}")


def samples(paths: Namespace, pairs: int) -> list[dict[str, Any]]:
    """SAMPLES training pairs at even distances, each with its line in the corpus. pairs: how many there are."""
    lines, files = (
        np.load(paths.filtered / "train.lines.npy"),
        read_json(paths.ids / "train.files.json"),
    )
    every, rows = max(1, pairs // SAMPLES), []
    sides = (islice(read_lines(paths.filtered / f"train.{side}"), None, None, every) for side in ("src", "tgt"))
    for number, (source, target) in zip(lines[::every][:SAMPLES].tolist(), zip(*sides, strict=True), strict=False):
        name, line = position_of(number, files) if files else ("", number)
        rows.append({"line": f"{name} {line}".strip(), "source": source, "target": target})
    return rows


if __name__ == "__main__":
    run(main)
