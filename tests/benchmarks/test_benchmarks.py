"""The training benchmark runs, its rows are complete and its arithmetic is right. Times are not checked."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from support.tiny import SIZES, random_pairs
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import train
from benchmarks.flops import Size, useful_flop
from transformer.model.config import TransformerConfig
from transformer.model.transformer import Transformer
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
def test_each_program_has_a_complete_row(folder, call, capsys):
    names = ["ours", "torch"]
    measured = ("--rounds", "1", "--seconds", "0.01", "--batch-tokens", "256", "--precision", "float32")
    call(train.main, *measured, "--programs", ",".join(names), "--json", f"{folder}/rows.json")
    rows = json.loads((folder / "rows.json").read_text())
    shown = capsys.readouterr().out
    assert [(row["program"], row["size"], row["device"]) for row in rows] == [(name, "tiny", "cpu") for name in names]
    for row in rows:
        assert min(row["tokens_per_second"], row["matrix_share"], row["matrix_rate_gflops"]) > 0
        assert row["memory_mb"] > 10
        assert row["ratio"] == pytest.approx(rows[0]["tokens_per_second"] / row["tokens_per_second"])
        assert row["program"] in shown


def test_useful_flop_is_what_torch_counts_without_padding():
    size, words, source, target = Size(16, 32, 2, 3), 23, 7, 5
    model = Transformer(TransformerConfig(words, 40, *vars(size).values(), 0.0, "pre", "sinusoidal", True))
    with FlopCounterMode(display=False) as counter:
        model.logits(model(torch.full((1, source), 4), torch.full((1, target), 4)))
    ahead = 6 * size.layers * 2 * size.d_model * target * (target - 1) / 2  # masked: computed but not used
    useful = useful_flop(size, words, np.array([source]), np.array([target]))
    assert useful + ahead == 3 * counter.get_total_flops()  # twice as much backward as forward
