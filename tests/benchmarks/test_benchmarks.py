"""The training benchmark runs, its rows are complete and its arithmetic is right. Times are not checked."""

from __future__ import annotations

import json
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from support.tiny import SIZES, random_pairs
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import train
from benchmarks.flops import Size, useful_flop
from benchmarks.programs import Program, Task
from benchmarks.worker import KINDS
from transformer.model.config import TransformerConfig
from transformer.model.transformer import Transformer
from transformer.text.pairs import Pairs
from transformer.text.vocabulary import SPECIALS

LIMIT = 100  # sentences x longest side of a batch


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


def program_of(folder, name: str) -> Program:
    """A program that trains on the pairs of the folder."""
    pairs, size = Pairs.load(folder / "ids", "train"), Size(16, 32, 2, 1)
    return KINDS[name](Task(size, SIZES["vocabulary"], pairs, LIMIT, "float32", torch.device("cpu")))


@pytest.mark.full
def test_each_program_has_a_complete_row(folder, call, capsys):
    names = ["ours", "torch", *(name for name, module in train.MODULES.items() if find_spec(module))]
    measured = ("--rounds", "1", "--seconds", "0.01", "--batch-tokens", "256", "--precision", "float32")
    call(train.main, *measured, "--programs", ",".join(names), "--json", f"{folder}/rows.json")
    rows = json.loads((folder / "rows.json").read_text())
    shown = capsys.readouterr().out
    assert [(row["program"], row["size"], row["device"]) for row in rows] == [(name, "tiny", "cpu") for name in names]
    for row in rows:
        assert min(row["tokens_per_second"], row["matrix_share"], row["matrix_rate_gflops"]) > 0
        assert row["memory_mb"] > 10
        assert 0 <= row["padding_share"] < 1
        assert row["ratio"] == pytest.approx(rows[0]["tokens_per_second"] / row["tokens_per_second"])
        assert row["program"] in shown


@pytest.mark.parametrize("name", train.MODULES)
def test_a_peer_makes_batches_by_its_own_rule(folder, name):
    if find_spec(train.MODULES[name]) is None:
        pytest.skip("make bench-setup installs it")
    program = program_of(folder, name)
    pairs, epochs = program.task.pairs, [program.batches.epoch(number) for number in range(2)]
    for epoch in epochs:
        rows = np.concatenate(epoch).tolist()
        assert len(set(rows)) == len(rows)
        if name == "joeynmt":
            assert len(rows) == len(pairs)
            assert all(len(batch) * pairs.longest[batch].max() >= LIMIT for batch in epoch[:-1])
            before = [(len(batch) - 1) * pairs.longest[batch[:-1]].max(initial=0) for batch in epoch]
            assert max(before) < LIMIT
        else:
            twice = len(pairs) - len({source.tobytes() for source in pairs.source})
            assert len(pairs) - twice <= len(rows) <= len(pairs)
            longest = np.maximum(pairs.source_lengths - 1, pairs.target_lengths + 1)  # no </s>; <s> and </s>
            assert all(len(batch) * longest[batch].max() <= LIMIT for batch in epoch)
    steps = [batch.tolist() for epoch in epochs for batch in epoch]
    for step in (len(steps), 1, len(epochs[0]), len(epochs[0]) + 1):  # a round starts before the end of the last one
        assert program.rows(step).tolist() == steps[step - 1]
    program.update(1)


def test_useful_flop_is_what_torch_counts_without_padding():
    size, words, source, target = Size(16, 32, 2, 3), 23, 7, 5
    model = Transformer(TransformerConfig(words, 40, *vars(size).values(), 0.0, "pre", "sinusoidal", True))
    with FlopCounterMode(display=False) as counter:
        model.logits(model(torch.full((1, source), 4), torch.full((1, target), 4)))
    ahead = 6 * size.layers * 2 * size.d_model * target * (target - 1) / 2  # masked: computed but not used
    useful = useful_flop(size, words, np.array([source]), np.array([target]))
    assert useful + ahead == 3 * counter.get_total_flops()  # twice as much backward as forward
