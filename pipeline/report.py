"""Stage report: write a page with the curves, scores and translations of a run, and a page about its corpus.

Reads   reports/training.csv, reports/training.json, reports/scores.json, reports/signatures.json,
        data/raw/<first test set>.{src,tgt}, data/hypotheses/<first test set>.hyp
        data/filtered/filter.json, data/subwords.json, data/attention.json
Writes  reports/report.html, reports/curves.svg, reports/data.html
Params  all: the page shows them
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from pipeline.shared.params import Params
from pipeline.shared.stage import arguments, require, run
from transformer.files import read_lines, write_text
from transformer.reporting import charts
from transformer.reporting import page as report
from transformer.reporting.data_page import data_page


def main() -> None:
    paths = arguments(
        __doc__, curve="reports/training.csv", summary="reports/training.json", scores="reports/scores.json",
        signatures="reports/signatures.json", raw="data/raw", hypotheses="data/hypotheses",
        filtered="data/filtered/filter.json", subwords="data/subwords.json", page="reports/report.html",
        data="reports/data.html", picture="reports/curves.svg", attention="data/attention.json",
    )  # fmt: skip
    params = Params.load(paths.params)
    curve = read(paths.curve, lambda path: charts.checked(pd.read_csv(path)))
    summary, scores, signatures = (read(path, read_table) for path in (paths.summary, paths.scores, paths.signatures))
    first = params.test_sets.split()[0]
    texts = paths.raw / f"{first}.src", paths.raw / f"{first}.tgt", paths.hypotheses / f"{first}.hyp"
    sources, references, hypotheses = (read(path, lambda path: list(read_lines(path))) for path in texts)
    for path, lines in zip(texts, (sources, references, hypotheses), strict=True):
        if len(lines) != len(references):
            counts = f"{len(lines)} lines, but {texts[1]} has {len(references)}"
            raise ValueError(f"{path}: {counts}. Nothing was written. Run `dvc repro`.")
    shown = report.RunReport(
        params=asdict(params), training=summary, curves=curve, scores=scores, signatures=signatures,
        sources=sources, references=references, hypotheses=hypotheses,
        attention=read(paths.attention, read_table),
    )  # fmt: skip
    made = {
        paths.page: report.page(shown),
        paths.picture: charts.picture(curve),
        paths.data: data_page(
            read(paths.filtered, read_table),
            read(paths.subwords, read_table),
            (params.source, params.target),
            params.corpus,
        ),
    }
    for path, text in made.items():
        write_text(path, text)
    print(f"written to {paths.page} and {paths.data}")


def read(path: Path, reader: Callable[[Path], Any]) -> Any:
    """The result of `reader` for a file. Raises ValueError, one line with the file and the remedy."""
    require(path)
    try:
        return reader(path)
    except ValueError as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}; delete it and run `dvc repro`") from None


def read_table(path: Path) -> dict[str, Any]:
    """The names and values in a JSON file. Raises ValueError if it has no JSON object."""
    values = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(values, dict):
        raise ValueError(f"must be an object of names and values, not {type(values).__name__}")
    return values


if __name__ == "__main__":
    run(main)
