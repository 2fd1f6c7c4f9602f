"""The decoding benchmark: all programs make the same number of steps, and its rows are complete."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch
from support.tiny import ROOT, TEXT, model_folder

from benchmarks.decode import with_ratios
from benchmarks.decode_worker import calls
from benchmarks.decoders import KINDS, PLACES, Task
from benchmarks.flops import Size


def task(**changes) -> Task:
    given = {"size": Size(16, 32, 2, 1), "vocabulary": 40, "beam_size": 4, "batch": 3, "steps": 9}
    return Task(**{**given, "precision": "float32", "device": torch.device("cpu"), **changes})


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("name", KINDS)
def test_every_program_makes_the_requested_number_of_steps(name, beam_size):
    if find_spec(PLACES[name]) is None:
        pytest.skip("make bench-setup installs it")
    program = KINDS[name](task(beam_size=beam_size))
    assert program.translate([[5, 6, 7], [8], [9, 10]]) in (8, 9)  # a last step that chose </s> is not among the ids


def benchmark(place, *options: str) -> subprocess.CompletedProcess:
    """Run benchmarks.decode on a few lines."""
    (place / "text").write_text("\n".join(TEXT * 3) + "\n", encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "benchmarks.decode",
        "--text",
        str(place / "text"),
        "--codes",
        str(place / "model/bpe.codes"),
        "--vocab",
        str(place / "model/vocab.txt"),
        "--rounds",
        "1",
        "--seconds",
        "0.01",
        "--steps",
        "3",
        "--json",
        str(place / "rows.json"),
        *options,
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("decode")
    model_folder(place / "model", spread=0.6)
    return place


@pytest.mark.full
def test_rows_of_this_decoder_and_of_ctranslate2(place):
    done = benchmark(place, "--programs", "ours,ctranslate2", "--beam-size", "2", "--batch", "1,4")
    assert done.returncode == 0, done.stderr
    rows = json.loads((place / "rows.json").read_text())
    shown = [(row["program"], row["precision"], row["beam_size"], row["batch"]) for row in rows]
    programs = [("ours", "float32"), ("ctranslate2", "float32"), ("ctranslate2", "int8")]
    assert shown == [(*program, 2, batch) for batch in (1, 4) for program in programs]
    for row in rows:
        assert row["tokens_per_second"] == pytest.approx(3 * row["sentences_per_second"])
        assert row["program"] in done.stdout


def test_rows_of_the_engine_and_of_bare_calls(place):
    done = benchmark(place, "--model", str(place / "model"), "--beam-size", "2")
    assert done.returncode == 0, done.stderr
    assert [row["program"] for row in json.loads((place / "rows.json").read_text())] == ["pipeline", "bare"]


def test_an_unknown_program_is_named_in_the_error(place):
    done = benchmark(place, "--programs", "moses")
    assert done.returncode == 1
    assert "'moses' is not one of ours, ctranslate2" in done.stderr


def test_all_programs_get_the_same_batches_of_similar_length():
    ids = [[5] * length for length in (3, 1, 0, 2, 9, 8, 7)]
    work = calls(ids, 2)
    assert work == calls(ids, 2)
    batches = [batch for call in work for batch in call]
    assert sorted(tuple(map(len, batch)) for batch in batches) == [(1, 2), (3, 7), (8, 9)]


def test_the_ratio_is_to_this_decoder_at_the_same_beam_and_batch_size():
    measured = [("ours", 1, 100.0), ("ctranslate2", 1, 200.0), ("ours", 4, 30.0), ("joeynmt", 4, 10.0)]
    rows = [
        {"program": program, "beam_size": beam, "batch": 1, "tokens_per_second": speed}
        for program, beam, speed in measured
    ]
    assert [row["ratio"] for row in with_ratios(rows)] == [1.0, 0.5, 1.0, 3.0]
