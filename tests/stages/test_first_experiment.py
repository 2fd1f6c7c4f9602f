"""The first experiment that a user types after `make run`, on the recipe as shipped."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from support.projects import command, runs, shipped_project

from transformer import Translator
from transformer.cores import cores
from transformer.files import read_lines


@pytest.mark.full
def test_the_first_experiments_have_bleu_in_table_and_runs(tmp_path: Path):
    project = shipped_project(tmp_path / "project")
    threads = {"OMP_NUM_THREADS": str(cores())}
    output = command(project, "dvc", "exp", "run", "-S", "warmup=8000", **threads)
    assert "warmup=8000 is longer than max_steps=" in output
    command(project, "dvc", "exp", "run", "-S", "beam_size=1", **threads)
    written = {(run.data.params["warmup"], run.data.params["beam_size"]): run for run in runs(project)}
    assert written.keys() == {("8000", "4"), ("8000", "1")}
    assert all(run.info.status == "FINISHED" and run.data.metrics["bleu"] >= 0 for run in written.values())
    table = list(csv.DictReader(command(project, "dvc", "exp", "show", "--csv").split("\n")))
    shown = {row["beam_size"]: row["bleu"] for row in table if row["Experiment"]}
    assert {beam: float(bleu) for beam, bleu in shown.items()} == pytest.approx(
        {beam: round(run.data.metrics["bleu"], 5) for (_, beam), run in written.items()}, abs=0.01
    )
    assert json.loads((project / "reports/engines.json").read_text())["engines_agree"] in (True, False, None)


@pytest.mark.full
def test_no_beam_of_the_toy_scores_below_greedy_search(tmp_path: Path):
    project = shipped_project(tmp_path / "project")
    command(project, "dvc", "repro", "average", OMP_NUM_THREADS=str(cores()))
    lines = list(read_lines(project / "data/raw/test.src"))[:200]
    for engine, beams in (("ctranslate2", range(2, 9)), ("torch", (2, 4, 8))):
        translator = Translator.load(project / "data/averaged", engine=engine)
        for penalty in (0.0, 0.6, 1.0):
            greedy, *wider = (
                [first.score for first, *_ in translator.alternatives(lines, beam_size=beam, length_penalty=penalty)]
                for beam in (1, *beams)
            )
            for scores in wider:
                assert all(score > best - 1e-4 for score, best in zip(scores, greedy, strict=True))
