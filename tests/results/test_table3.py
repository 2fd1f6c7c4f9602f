"""Table 3: its list is the paper's, it is queued once, and its table has each row with its p-value."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from support.projects import command, small_project

from pipeline.results import table3
from pipeline.results.table3 import p_text, table


def lines_of(path) -> list[list[str]]:
    text = path.read_text().split("\n")
    return [line.split() for line in text if line and not line.startswith("#")]


def finished(valid_bleu: float, bleu: float) -> Any:
    """An experiment with these BLEU scores on valid and on test."""
    return SimpleNamespace(
        scores=lambda: {"valid_bleu": valid_bleu, "bleu": bleu}, training=lambda: {"valid_perplexity": 100 / valid_bleu}
    )


def cells_of(text: str) -> list[list[str]]:
    """The cells of each line of a table in Markdown."""
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.split("\n") if line.startswith("|")]


def test_each_row_has_means_deviations_and_a_p_value(monkeypatch):
    monkeypatch.setattr(table3, "weights", lambda experiment: 2_500_000)
    lines = [["base"], ["A", "heads=1"], ["C", "layers=1"], ["D", "dropout=0.0"], ["F", "decoder_layers=1"]]
    runs = [
        [finished(30.0, 31.0), finished(30.6, 31.4)],
        [finished(27.0, 28.0), finished(29.4, 28.6)],
        [],
        [finished(25.0, 26.0)],
        [finished(25.0, 28.0), finished(25.1, 28.6)],
    ]
    text = cells_of(table(lines, runs))
    base, heads, dropout, depth = (dict(zip(text[0], row, strict=True)) for row in text[2:])
    assert (base["BLEU on valid"], base["BLEU on test"], base["p"]) == ("30.3 ± 0.4", "31.2 ± 0.3", "")
    assert (heads["changed"], heads["difference"], heads["weights x 10^6"]) == ("heads=1", "-2.1", "2.50")
    assert 0 < float(depth["p"]) < 0.05 < float(heads["p"])
    assert (dropout["runs"], dropout["BLEU on valid"], dropout["difference"], dropout["p"]) == ("1", "25.0", "-5.3", "")
    assert [p_text(p) for p in (None, 0.0494, 0.0005, 0.0004, 0.0)] == ["", "0.049", "0.001", "<0.001", "<0.001"]


@pytest.mark.full
def test_the_list_is_queued_once_and_its_table_has_the_finished_rows(tmp_path):
    folder = small_project(tmp_path / "project")

    def printed(*options: str, **more) -> str:
        return command(folder, sys.executable, "-m", "pipeline", "table3", *options, "--rows", "rows", **more)

    (folder / "rows").write_text("base\nB key_size=2\n")
    assert "error: No experiment table3-base-seed-" in printed("show", status=1)
    queued = re.findall("queued (.*)", printed("queue"))
    assert queued == [f"table3-{row}seed-{seed}" for seed in (1, 2) for row in ("base-", "B-key_size-2-")]
    assert "0 experiments were queued, 4 are there" in printed("queue")
    command(folder, "dvc", "exp", "run", "--run-all")
    lines = cells_of(printed("show"))
    assert [line[:3] for line in lines[2:4]] == [["base", "", "2"], ["B", "key_size=2", "2"]]
    (folder / "rows").write_text("base\nB key_size=x\n")
    assert "key_size='x'" in printed("queue", status=1)
