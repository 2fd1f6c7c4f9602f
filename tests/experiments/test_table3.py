"""The grid of Table 3: its rows are the paper's, it is queued once, and its table has each row with its p-value."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.projects import command, small_project

from pipeline.experiments.table3 import Row, grid, shown_p, table
from pipeline.params import Params

ROOT = Path(__file__).parents[2]
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
    base = Params.load(ROOT / "recipes/wmt14_base.yaml")
    found: dict[str, list] = {}
    for row in grid(base):
        if row.part in "ABCDE":
            ((knob, value),) = row.changes.items()
            found.setdefault(knob, []).append(value)
    assert found == PAPER
    assert [row.changes for row in grid(base) if row.part == "F"] == [
        {"encoder_layers": 12, "decoder_layers": 1},
        {"decoder_layers": 1},
    ]


@pytest.mark.parametrize("recipe", ["table3", "wmt14_base"])
def test_the_short_grid_has_twelve_configurations_of_every_part(recipe):
    rows = [row for row in grid(Params.load(ROOT / f"recipes/{recipe}.yaml")) if row.short]
    assert len(rows) == 12
    assert {row.part for row in rows} == {"base", *"ABCDEF"}
    assert len({row.name("x", 1) for row in rows}) == 12


def test_rows_that_are_the_base_again_or_impossible_are_left_out():
    base = Params.load(ROOT / "params.yaml").changed(heads=1, layers=1, d_model=6, dropout=0.0)
    rows = grid(base)
    configurations = [base.model_copy(update=row.changes) for row in rows]
    assert len(set(configurations)) == len(configurations)
    assert all(params.changed() == params for params in configurations)  # a params.yaml may hold them
    assert [row.changes["heads"] for row in rows if row.part == "A"] == [2]  # 4 does not divide 6


def test_a_base_that_sets_a_knob_of_the_grid_is_refused():
    base = Params.load(ROOT / "params.yaml").changed(decoder_layers=1)
    with pytest.raises(ValueError, match=r"has decoder_layers=1\. Set key_size, encoder_layers, decoder_layers to 0"):
        grid(base)


class Finished:
    """An experiment with these BLEU scores on valid and on test, and a model of 2,500,000 weights."""

    def __init__(self, valid_bleu: float, bleu: float):
        self.found = {"valid_bleu": valid_bleu, "bleu": bleu}

    def scores(self) -> dict[str, float]:
        return self.found

    def training(self) -> dict[str, float]:
        return {"valid_perplexity": 100 / self.found["valid_bleu"]}


def test_the_table_has_means_deviations_and_a_p_value_for_each_row_of_several_seeds(monkeypatch):
    monkeypatch.setattr("pipeline.experiments.table3.weights", lambda experiment: 2_500_000)
    rows: Any = {
        Row("base", {}): [Finished(30.0, 31.0), Finished(30.6, 31.4)],
        Row("A", {"heads": 1}): [Finished(27.0, 28.0), Finished(27.4, 28.6)],
        Row("D", {"dropout": 0.0}): [Finished(25.0, 26.0)],
    }
    head, _, *cells = cells_of(table(rows, list(rows), None))
    base, heads, dropout = (dict(zip(head, row, strict=True)) for row in cells)
    assert (base["BLEU on valid"], base["BLEU on test"], base["p"]) == ("30.3 ± 0.4", "31.2 ± 0.3", "")
    assert (heads["changed"], heads["difference"], heads["weights x 10^6"]) == ("heads 1", "-3.1", "2.50")
    assert 0 < float(heads["p"]) < 0.05
    assert (dropout["runs"], dropout["BLEU on valid"], dropout["difference"], dropout["p"]) == ("1", "25.0", "-5.3", "")


def cells_of(text: str) -> list[list[str]]:
    """The cells of each line of a table in Markdown."""
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]


def test_a_part_of_the_table_has_the_p_values_of_the_whole_table(monkeypatch):
    monkeypatch.setattr("pipeline.experiments.table3.weights", lambda experiment: 2_500_000)
    rows: Any = {
        Row("base", {}): [Finished(30.0, 31.0), Finished(30.1, 31.4)],
        Row("A", {"heads": 1}): [Finished(27.0, 28.0), Finished(29.4, 28.6)],
        Row("F", {"decoder_layers": 1}): [Finished(29.0, 28.0), Finished(29.1, 28.6)],
    }
    base, _, last = rows
    whole, part = (cells_of(table(rows, shown, None)) for shown in (list(rows), [base, last]))
    assert part == [*whole[:3], whole[4]]


def test_a_p_value_is_never_shown_as_zero():
    assert [shown_p(p) for p in (None, 0.0494, 0.0005, 0.0004, 0.0)] == ["", "0.049", "0.001", "<0.001", "<0.001"]


def table3(folder: Path, *options: str, **more) -> str:
    """What the command prints in a folder."""
    return command(folder, sys.executable, "-m", "pipeline", "table3", *options, **more)


@pytest.mark.full
def test_the_grid_is_queued_once_and_its_table_has_the_finished_rows(tmp_path):
    folder = small_project(tmp_path / "project")
    assert "error: No experiment table3-base-seed-" in table3(folder, "show", status=1)
    assert "error: --seeds 1,x:" in table3(folder, "queue", "--seeds", "1,x", status=1)
    assert "error: --parts B,G: 'G' is not one of A, B, C" in table3(folder, "queue", "--parts", "B,G", status=1)
    queued = re.findall("queued (.*)", table3(folder, "queue", "--short", "--parts", "B"))
    assert queued == [f"table3-{row}-seed-{seed}" for seed in (1, 2) for row in ("base", "B-key_size-2")]
    assert "0 experiments were queued, 4 are done or waiting" in table3(folder, "queue", "--short", "--parts", "B")
    path = folder / "params.yaml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("warmup: 4", "warmup: 5"), encoding="utf-8")
    shown = table3(folder, "queue", "--short", "--parts", "b", status=1)
    assert "table3-base-seed-1 waits in the queue with other params. Nothing was queued." in shown
    path.write_text(text, encoding="utf-8")
    command(folder, "dvc", "queue", "start", "--jobs", "2")
    for name in queued:
        command(folder, "dvc", "queue", "logs", "--follow", name)
    while "Running" in command(folder, "dvc", "queue", "status"):
        time.sleep(1)
    lines = table3(folder, "show", "--speed").split("\n")
    assert [line.split(" | ")[:3] for line in lines[2:4]] == [["| base", "", "2"], ["| B", "key_size 2", "2"]]
    head, base, keys = ([cell.strip() for cell in lines[place].split("|")[1:-1]] for place in (0, 2, 3))
    assert (base[head.index("difference")], base[head.index("p")]) == ("", "")
    assert keys[head.index("difference")] == "+0.0"  # models as small as this have a BLEU of 0
    assert all(float(cell) > 0 for row in (base, keys) for cell in row[-2:])  # sentences per second
    assert "0 experiments were queued, 4 are done" in table3(folder, "queue", "--short", "--parts", "B")
    path.write_text(text.replace("warmup: 4", "warmup: 5"), encoding="utf-8")
    assert "is there with other params. Nothing was queued." in table3(folder, "queue", status=1)
