"""The grid of Table 3: its rows are the paper's, it is queued once, and its table has each row with its p-value."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from support.projects import command, params_file, small_project
from support.tiny import ROOT

from pipeline.results import table3
from pipeline.results.table3 import Row, grid, p_text, results_by_seed, table
from pipeline.workflow.params import Params

PAPER = {  # values of table 3 of the paper, rows A to E, without those of its base
    "heads": [1, 4, 16, 32],
    "key_size": [16, 32],
    "layers": [2, 4, 8],
    "d_model": [256, 1024],
    "d_ff": [1024, 4096],
    "dropout": [0.0, 0.2],
    "label_smoothing": [0.0, 0.2],
    "positions": ["learned"],
}


def test_the_rows_around_the_papers_base_are_the_papers():
    rows: dict[str, list] = {}
    for row in grid(Params.load(ROOT / "recipes/wmt14_base.yaml")):
        if row.part in "ABCDE":
            ((knob, value),) = row.changes.items()
            rows.setdefault(knob, []).append(value)
    assert rows == PAPER


@pytest.mark.parametrize("recipe", ["table3", "wmt14_base"])
def test_the_short_grid_has_twelve_configurations_of_every_part(recipe):
    rows = [row for row in grid(Params.load(ROOT / f"recipes/{recipe}.yaml")) if row.short]
    assert {row.part for row in rows} == {"base", *"ABCDEF"}
    assert len(rows) == len({row.name("x", 1) for row in rows}) == 12


def test_rows_that_are_the_base_again_or_impossible_are_left_out():
    base = Params.load(ROOT / "params.yaml").changed(heads=1, layers=1, d_model=6, dropout=0.0)
    rows = grid(base)
    assert len({base.changed(**row.changes) for row in rows}) == len(rows)
    assert [row.changes["heads"] for row in rows if row.part == "A"] == [2]  # 4 does not divide 6


def test_a_base_that_sets_a_knob_of_the_grid_is_refused():
    base = Params.load(ROOT / "params.yaml").changed(decoder_layers=1)
    with pytest.raises(ValueError, match=r"has decoder_layers=1\. Set key_size, encoder_layers, decoder_layers to 0"):
        grid(base)


def finished(valid_bleu: float, bleu: float) -> Any:
    """An experiment with these BLEU scores on valid and on test."""
    return SimpleNamespace(
        scores=lambda: {"valid_bleu": valid_bleu, "bleu": bleu}, training=lambda: {"valid_perplexity": 100 / valid_bleu}
    )


def cells_of(text: str) -> list[list[str]]:
    """The cells of each line of a table in Markdown."""
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]


def test_each_row_has_means_deviations_and_a_p_value(monkeypatch):
    """And a part of the table has the p-values of all rows."""
    monkeypatch.setattr(table3, "weights", lambda experiment: 2_500_000)
    runs = {
        Row("base", {}): [finished(30.0, 31.0), finished(30.6, 31.4)],
        Row("A", {"heads": 1}): [finished(27.0, 28.0), finished(29.4, 28.6)],
        Row("D", {"dropout": 0.0}): [finished(25.0, 26.0)],
        Row("F", {"decoder_layers": 1}): [finished(25.0, 28.0), finished(25.1, 28.6)],
    }
    text = cells_of(table(runs, list(runs)))
    base, heads, dropout, depth = (dict(zip(text[0], row, strict=True)) for row in text[2:])
    assert (base["BLEU on valid"], base["BLEU on test"], base["p"]) == ("30.3 ± 0.4", "31.2 ± 0.3", "")
    assert (heads["changed"], heads["difference"], heads["weights x 10^6"]) == ("heads 1", "-2.1", "2.50")
    assert 0 < float(depth["p"]) < 0.05 < float(heads["p"])
    assert (dropout["runs"], dropout["BLEU on valid"], dropout["difference"], dropout["p"]) == ("1", "25.0", "-5.3", "")
    base_row, *_, last = runs
    assert cells_of(table(runs, [base_row, last])) == [*text[:3], text[-1]]
    assert [p_text(p) for p in (None, 0.0494, 0.0005, 0.0004, 0.0)] == ["", "0.049", "0.001", "<0.001", "<0.001"]


def test_a_row_has_its_experiments_once_for_each_seed():
    base = Params.load(ROOT / "params.yaml")
    results: Any = [
        SimpleNamespace(name=f"{seed} {dropout}", params=base.changed(seed=seed, dropout=dropout))
        for seed, dropout in ((2, 0.2), (1, 0.2), (1, 0.3), (2, 0.2))
    ]
    assert [result.name for result in results_by_seed(results, vars(base) | {"dropout": 0.2})] == ["1 0.2", "2 0.2"]


def printed(folder, *options: str, **more) -> str:
    """What the command prints in a folder."""
    return command(folder, sys.executable, "-m", "pipeline", "table3", *options, **more)


@pytest.mark.full
def test_the_grid_is_queued_once_and_its_table_has_the_finished_rows(tmp_path):
    folder = small_project(tmp_path / "project")
    assert "error: No experiment table3-base-seed-" in printed(folder, "show", status=1)
    assert "error: --seeds 1,x:" in printed(folder, "queue", "--seeds", "1,x", status=1)
    assert "error: --parts B,G: 'G' is not one of A, B, C" in printed(folder, "queue", "--parts", "B,G", status=1)
    queued = re.findall("queued (.*)", printed(folder, "queue", "--short", "--parts", "B"))
    assert queued == [f"table3-{row}-seed-{seed}" for seed in (1, 2) for row in ("base", "B-key_size-2")]
    assert "0 experiments were queued, 4 are done or waiting" in printed(folder, "queue", "--short", "--parts", "B")
    params_file(folder, warmup=5)
    refusal = r"table3-\S+-seed-\d is done, or waits in the queue, with other params\. Nothing was queued\."
    assert re.search(refusal, printed(folder, "queue", "--short", "--parts", "b", status=1))
    command(folder, "git", "checkout", "params.yaml")
    command(folder, "dvc", "exp", "run", "--run-all")
    lines = cells_of(printed(folder, "show"))
    assert [line[:3] for line in lines[2:4]] == [["base", "", "2"], ["B", "key_size 2", "2"]]
    base, keys = (dict(zip(lines[0], line, strict=True)) for line in lines[2:4])
    assert (base["difference"], base["p"], keys["difference"]) == ("", "", "+0.0")  # models this small have BLEU 0
    assert "0 experiments were queued, 4 are done" in printed(folder, "queue", "--short", "--parts", "B")
    params_file(folder, warmup=5)
    assert re.search(refusal, printed(folder, "queue", status=1))
