"""The training benchmark runs and its rows are complete. Times are not checked."""

from __future__ import annotations

import json

import pytest
from support.tiny import SIZES, random_pairs

from benchmarks import train
from transformer.text.vocabulary import SPECIALS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Ids and vocabulary as the pipeline writes them."""
    folder = tmp_path_factory.mktemp("benchmark")
    random_pairs(folder / "ids", 300)
    words = [*SPECIALS, *(f"▁{i}" for i in range(len(SPECIALS), SIZES["vocabulary"]))]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def call(folder, monkeypatch):
    """Run a benchmark's main() on the pairs of the folder."""

    def call(main, *options: str) -> None:
        paths = ["--ids", f"{folder}/ids", "--vocab", f"{folder}/vocab.txt"]
        monkeypatch.setattr("sys.argv", ["benchmark", *paths, *options])
        main()

    return call


@pytest.mark.full
def test_each_program_has_a_complete_row(folder, call, capsys, monkeypatch):
    names = ["ours", "torch"]
    monkeypatch.setattr(train, "multiplies_bfloat16", lambda device: False)
    measured = ("--rounds", "1", "--seconds", "0.01", "--batch-tokens", "256")
    call(train.main, *measured, "--programs", *names, "--json", f"{folder}/rows.json")
    rows = json.loads((folder / "rows.json").read_text())
    shown = capsys.readouterr().out
    assert [(row["program"], row["size"], row["device"]) for row in rows] == [(name, "tiny", "cpu") for name in names]
    for row in rows:
        assert row["tokens_per_second"] > 0
        assert row["ratio"] == pytest.approx(rows[0]["tokens_per_second"] / row["tokens_per_second"])
        assert row["program"] in shown
