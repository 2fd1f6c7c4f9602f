"""The training benchmark runs, its rows are complete and its arithmetic is right. Times are not checked."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.tiny import ROOT, SIZES, random_pairs
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.flops import SIZES as MEASURED
from benchmarks.flops import Size, matrix_shapes, useful_flop
from benchmarks.processes import Failed, Worker
from benchmarks.profile import REST, condensed, is_product, profiled
from benchmarks.profile import main as profile
from benchmarks.programs import Program, Task
from benchmarks.scaling import tiled
from benchmarks.table import marked, row_of, summary, text_table, with_ratios
from benchmarks.train import MODULES, chosen, options, precisions
from benchmarks.worker import KINDS
from transformer.model.config import TransformerConfig
from transformer.model.cpu import multiplies_bfloat16
from transformer.model.transformer import Transformer
from transformer.text.pairs import Pairs
from transformer.text.vocabulary import PAD, SPECIALS

LIMIT = 100  # sentences x longest side of a batch

# The names and signatures of the real script without its code. It checks its arguments.
SCRIPT = """
import GPUtil, torch
import altair as alt
import nowhere.to_be.found as absent
from torchtext.data.functional import to_map_style_dataset
from torchtext.vocab import build_vocab_from_iterator
from torch import nn

alt.data_transformers.disable_max_rows()

class Batch:
    def __init__(self, src, tgt=None, pad=2):
        assert src.shape[1] == tgt.shape[1] == 72 and len(src) <= 32
        assert pad == 0 and (src[:, 0] == 2).all() and (tgt[:, 0] == 2).all()
        assert ((src == 3).sum(1) == 1).all() and ((tgt == 3).sum(1) == 1).all()
        self.src, self.tgt, self.tgt_y = src, tgt[:, :-1], tgt[:, 1:]
        self.src_mask, self.tgt_mask = src != pad, self.tgt != pad
        self.ntokens = (self.tgt_y != pad).sum()

class Model(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.embedding, self.generator = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)
    def forward(self, src, tgt, src_mask, tgt_mask):
        return self.embedding(tgt) + self.embedding(src).mean(1, keepdim=True)

def make_model(src_vocab, tgt_vocab, N=6, d_model=512, d_ff=2048, h=8, dropout=0.1):
    assert (N, d_model, d_ff, h, dropout) == (4, 128, 256, 4, 0.1) and src_vocab == tgt_vocab
    return Model(tgt_vocab, d_model)

class LabelSmoothing(nn.Module):
    def __init__(self, size, padding_idx, smoothing=0.0):
        super().__init__()
        assert (padding_idx, smoothing) == (0, 0.1)
    def forward(self, x, target):
        return nn.functional.cross_entropy(x, target, ignore_index=0, reduction="sum")

class SimpleLossCompute:
    def __init__(self, generator, criterion):
        self.generator, self.criterion = generator, criterion
    def __call__(self, x, y, norm):
        x = self.generator(x)
        loss = self.criterion(x.flatten(0, 1), y.flatten()) / norm
        return loss.data * norm, loss

if __name__ == "__main__":
    raise SystemExit("a notebook's cells do not run")
"""


def benchmark(folder, *options: str) -> subprocess.CompletedProcess:
    """Run benchmarks.train on a few hundred random pairs, at the size tiny."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.train",
        "--ids",
        str(folder / "ids"),
        "--vocab",
        str(folder / "vocab.txt"),
        "--rounds",
        "1",
        "--seconds",
        "0.01",
        "--batch-tokens",
        "256",
        "--precision",
        "float32",
        *options,
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def program_of(folder, name: str, own_batches: bool) -> Program:
    """A program that trains on the pairs of the folder."""
    pairs = Pairs.load(folder / "ids", "train")
    given = {"batch_tokens": LIMIT, "own_batches": own_batches, "precision": "float32", "device": torch.device("cpu")}
    return KINDS[name](Task(size=Size(16, 32, 2, 1), vocabulary=SIZES["vocabulary"], pairs=pairs, **given))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Ids and vocabulary as the pipeline writes them."""
    folder = tmp_path_factory.mktemp("benchmark")
    random_pairs(folder / "ids", 300)
    words = [*SPECIALS, *(f"▁{i}" for i in range(len(SPECIALS), SIZES["vocabulary"]))]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    return folder


@pytest.mark.full
def test_rows_of_this_trainer_and_of_torch(folder):
    done = benchmark(folder, "--programs", "ours,torch", "--json", f"{folder}/rows.json", "--plot", f"{folder}/b.svg")
    assert done.returncode == 0, done.stderr
    rows = json.loads((folder / "rows.json").read_text())
    assert [(row["program"], row["size"], row["precision"], row["device"]) for row in rows] == [
        ("ours", "tiny", "float32", "cpu"),
        ("torch", "tiny", "float32", "cpu"),
    ]
    for row in rows:
        assert row["tokens_per_second"] > 0
        assert row["matrix_share"] > 0
        assert row["matrix_rate_gflops"] > 0
        assert row["memory_mb"] > 10
        assert 0 < row["padding_share"] < 1
        assert row["ratio"] == pytest.approx(rows[0]["tokens_per_second"] / row["tokens_per_second"])
        assert row["program"] in done.stdout
    assert (folder / "b.svg").read_text().startswith("<svg")


@pytest.mark.full
def test_a_copy_of_the_annotated_transformer_trains_on_its_own_batches(folder):
    script = folder / "the_annotated_transformer.py"
    script.write_text(SCRIPT)
    given = ("--programs", "annotated", "--annotated", str(script), "--json", f"{folder}/annotated.json")
    done = benchmark(folder, *given)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads((folder / "annotated.json").read_text())
    assert row["padding_share"] > 0.8  # sentences of at most twelve, padded to 72


def test_another_script_is_refused_in_one_line(folder):
    script = folder / "other.py"
    script.write_text("make_model = None\n")
    done = benchmark(folder, "--programs", "annotated", "--annotated", str(script))
    assert done.returncode == 1
    assert "annotated tiny float32: not measured" in done.stderr
    assert "lacks Batch, LabelSmoothing, SimpleLossCompute" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture(params=[*MODULES])
def other(request) -> str:
    """The name of another trainer that is installed."""
    if find_spec(MODULES[request.param]) is None:
        pytest.skip("make bench-setup installs it")
    return request.param


@pytest.mark.parametrize("batches", ["own", "shared"])
def test_the_other_trainers_train(folder, other, batches):
    given = ("--precision", "all", "--force-autocast", "--batches", batches)
    done = benchmark(folder, "--programs", other, *given, "--json", f"{folder}/{other}.json")
    assert done.returncode == 0, done.stderr
    rows = json.loads((folder / f"{other}.json").read_text())
    forced = multiplies_bfloat16(torch.device("cpu"))
    assert [(row["program"], row["precision"], row["forced"], row["batches"]) for row in rows] == [
        (other, "float32", False, batches),
        (other, "bfloat16", True, batches),
    ][: 1 + forced]
    assert ("bfloat16 (forced)" in done.stdout) == forced


def test_the_other_trainers_make_batches_by_their_own_rule(folder, other):
    program = program_of(folder, other, own_batches=True)
    pairs, epochs = program.task.pairs, [program.batches.epoch(number) for number in range(2)]
    for epoch in epochs:
        rows = np.concatenate(epoch).tolist()
        assert len(set(rows)) == len(rows)
        if other == "joeynmt":
            assert len(rows) == len(pairs)
            sizes = [
                (len(batch), pairs.longest[batch].max(), pairs.longest[batch[:-1]].max(initial=0)) for batch in epoch
            ]
            assert all((number - 1) * without_last < LIMIT for number, _, without_last in sizes)
            assert all(number * longest >= LIMIT for number, longest, _ in sizes[:-1])
        else:
            twice = len(pairs) - len({source.tobytes() for source in pairs.source})
            assert len(pairs) - twice <= len(rows) <= len(pairs)
            longest = np.maximum(pairs.source_lengths - 1, pairs.target_lengths + 1)  # no </s>; <s> and </s>
            assert all(len(batch) * longest[batch].max() <= LIMIT for batch in epoch)
    assert [batch.tolist() for batch in epochs[0]] != [batch.tolist() for batch in epochs[1]]
    steps = [batch.tolist() for epoch in epochs for batch in epoch]
    for step in (len(steps), 1, len(epochs[0]), len(epochs[0]) + 1):  # a round starts before the end of the last one
        assert program.rows(step).tolist() == steps[step - 1]


@pytest.mark.parametrize("own_batches", [True, False])
def test_the_padding_of_the_other_trainers_is_counted_in_their_batches(folder, other, own_batches):
    program = program_of(folder, other, own_batches=own_batches)
    rows = program.rows(1)
    if other == "joeynmt":
        batch = program.batch(rows)
        source, target, pad = batch.src, batch.trg, program.model.pad_index
    else:
        batch, tokens = program.batch(rows)
        source, target, pad = batch["src"], batch["tgt"][:, 1:], PAD
        assert tokens == (target != pad).sum()
        assert batch["srclen"].tolist() == (source != pad).sum((1, 2)).tolist()
    assert source.numel() + target.numel() == program.positions(rows)
    for side, lengths in zip((source, target), program.lengths(rows), strict=True):
        assert (side != pad).sum() == lengths.sum()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--ids", "nowhere"], "error: nowhere is missing. Run `dvc repro`, which makes it."),
        (["--programs", "ours,theirs"], "error: --programs: 'theirs' is not one of"),
        (["--programs", "annotated"], "error: annotated needs --annotated PATH"),
        (["--programs", "compiled"], "error: compiled needs --device cuda"),
        (["--plot", "speed.png"], "error: --plot speed.png: the name must end in .svg or .html"),
    ],
)
def test_a_wrong_option_gives_an_error_of_one_line(folder, options, reason):
    done = benchmark(folder, *options)
    assert done.returncode == 1
    assert done.stderr.startswith(reason)
    assert done.stderr.count("\n") == 1


def test_a_program_that_cannot_be_built_reports_the_reason(folder):
    setting = {
        "program": "ours",
        "size": "tiny",
        "precision": "float32",
        "device": "nowhere",
        "batch_tokens": 256,
        "batches": "own",
        "ids": str(folder / "ids"),
        "vocab": str(folder / "vocab.txt"),
    }
    worker = Worker(setting)
    with pytest.raises(Failed, match="nowhere"):
        worker.receive()
    worker.close()


def test_useful_flop_is_what_torch_counts_without_padding():
    size, vocabulary, source, target = Size(16, 32, 2, 3), 23, 7, 5
    model = Transformer(
        TransformerConfig(
            **vars(size),
            vocabulary=vocabulary,
            dropout=0.0,
            norm="pre",
            positions="sinusoidal",
            tie_embeddings=True,
            max_positions=40,
        )
    )
    with FlopCounterMode(display=False) as counter:
        model.logits(model(torch.full((1, source), 4), torch.full((1, target), 4)))
    ahead = 6 * size.layers * 2 * size.d_model * target * (target - 1) / 2  # masked: computed but not used
    useful = useful_flop(size, vocabulary, np.array([source]), np.array([target]))
    assert useful + ahead == 3 * counter.get_total_flops()  # twice as much backward as forward


def test_the_matrix_rate_is_measured_on_every_matrix_of_the_model():
    for size in MEASURED.values():
        model = Transformer(
            TransformerConfig(
                **vars(size),
                vocabulary=99,
                dropout=0.0,
                norm="pre",
                positions="sinusoidal",
                tie_embeddings=True,
                max_positions=40,
            )
        )
        weights = sum(parameter.numel() for parameter in model.parameters() if parameter.dim() == 2)
        assert sum(rows * columns * number for (rows, columns), number in matrix_shapes(size, 99).items()) == weights


def test_a_profile_divides_the_whole_time_of_an_update_among_operations(folder):
    rows = profiled(program_of(folder, "ours", own_batches=True), updates=2)
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    assert all(row["share"] > 0 and row["milliseconds"] > 0 for row in rows)
    calls = {row["operation"]: row["calls"] for row in rows}
    assert calls["_SmoothedCrossEntropy"] == 1  # one micro-batch
    assert {"aten::mm", "aten::addmm", "aten::bmm"} == {name for name in calls if is_product(name)}
    assert rows[-1]["operation"] == REST
    shown, line = condensed(rows, least=0.1)
    assert sum(row["share"] for row in shown) == pytest.approx(1)
    whole = rows[-1]["milliseconds"] / rows[-1]["share"]
    products = sum(row["milliseconds"] for row in rows if row["operation"] in ("aten::mm", "aten::addmm", "aten::bmm"))
    assert line == f"an update takes {whole:,.1f} ms, {products / whole:.1%} of it in products of matrices"


@pytest.mark.parametrize(
    ("options", "reason"),
    [(["--updates", "0"], "--updates 0: must be 1 or more"), (["--ids", "nowhere"], "nowhere is missing")],
)
def test_a_profile_without_updates_or_ids_is_refused(folder, monkeypatch, options, reason):
    given = ["--ids", str(folder / "ids"), "--vocab", str(folder / "vocab.txt"), *options]
    monkeypatch.setattr("sys.argv", ["profile", *given])
    with pytest.raises(ValueError, match=reason):
        profile()


def test_a_row_is_the_median_of_its_rounds():
    rounds = [
        {"target_tokens": tokens, "seconds": 2.0, "flop": 1e9 * tokens, "tokens": 60, "positions": 80, "memory": 5e6}
        for tokens in (20, 60, 400)
    ]
    setting = {"size": "tiny", "precision": "float32", "forced": False, "batches": "own", "device": "cpu"}
    rows = with_ratios(
        [
            row_of({"program": "torch", **setting}, rounds[:1], 60e9),
            row_of({"program": "ours", **setting}, rounds, 60e9),
        ]
    )
    assert rows[1]["tokens_per_second"] == 30
    assert rows[1]["matrix_share"] == 0.5
    assert rows[1]["padding_share"] == 0.25
    assert [row["ratio"] for row in rows] == [3, 1]
    assert text_table(rows).splitlines()[2].split() == ["ours", "tiny", "float32", "30", "1.00", "50.0%", "5", "25.0%"]


def test_on_a_gpu_this_trainer_is_also_measured_compiled(folder, monkeypatch):
    monkeypatch.setattr("sys.argv", ["train", "--device", "cuda"])
    assert {"ours", "compiled"} < {*chosen(options())}
    asked = []
    trainer = SimpleNamespace(batches=None)
    monkeypatch.setattr("benchmarks.programs.Trainer", lambda *given: asked.append(given[-1].compile) or trainer)
    for name in ("ours", "compiled"):
        program_of(folder, name, own_batches=True)
    assert asked == [False, True]


def test_bfloat16_is_left_out_on_a_machine_without_instructions_for_it(monkeypatch):
    monkeypatch.setattr("sys.argv", ["train", "--force-autocast"])
    given = options()
    for has, wanted in ((True, ["float32", "bfloat16"]), (False, ["float32"])):
        monkeypatch.setattr("benchmarks.train.multiplies_bfloat16", lambda device, has=has: has)
        for program in ("ours", "torch", "joeynmt"):
            assert [*precisions(given, program)] == wanted


def test_the_summary_compares_the_fastest_rows_without_forced_ones():
    measured = [
        ("ours", "float32", 60, False),
        ("ours", "bfloat16", 90, False),
        ("torch", "float32", 30, False),
        ("torch", "bfloat16", 20, False),
        ("opennmt", "float32", 45, False),
        ("opennmt", "bfloat16", 80, True),
    ]
    rows = with_ratios(
        [
            {"size": "base", "program": program, "precision": precision, "tokens_per_second": speed, "forced": forced}
            for program, precision, speed, forced in measured
        ]
    )
    assert summary(rows) == ["base: ours (bfloat16) is 2.0 x opennmt (float32), 3.0 x torch (float32)"]
    assert [row["precision"] for row in marked(rows)][-2:] == ["float32", "bfloat16 (forced)"]
    assert summary(rows[2:]) == []


def test_repeated_pairs_are_equal_to_the_originals(folder):
    few = Pairs.load(folder / "ids", "train")
    with tiled(folder / "ids", 700) as many:
        more = Pairs.load(many, "train")
        assert len(more) == len(more.lines) == 700
        for row in (0, 299, 300, 699):
            again, first = (pairs.batch(np.array([r])) for pairs, r in ((more, row), (few, row % 300)))
            assert [part.tolist() for part in again] == [part.tolist() for part in first]
