"""The decoding benchmark: all programs make the same number of steps, and its rows are complete."""

from __future__ import annotations

import json

import pytest
import torch
from support.tiny import TEXT, model_folder

from benchmarks import decode
from benchmarks.decoders import KINDS, Task
from benchmarks.programs import Size


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("name", KINDS)
def test_every_program_makes_the_same_number_of_steps(name, beam_size):
    task = Task(Size(16, 32, 2, 1), 40, beam_size, batch=3, steps=9, precision="float32", device=torch.device("cpu"))
    assert KINDS[name](task).translate([[5, 6, 7], [8], [9, 10]]) in (8, 9)  # without a </s> in the last step


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Run decode.main() on a few lines, and return its rows."""
    model_folder(tmp_path / "model", spread=0.6)
    (tmp_path / "text").write_text("\n".join(TEXT * 3) + "\n", encoding="utf-8")

    def call(*options: str) -> list[dict]:
        files = {"text": "text", "codes": "model/bpe.codes", "vocab": "model/vocab.txt", "json": "rows.json"}
        paths = [word for name, file in files.items() for word in (f"--{name}", str(tmp_path / file))]
        monkeypatch.setattr("sys.argv", ["decode", *paths, "--rounds", "1", "--seconds", "0.01", *options])
        decode.main()
        return json.loads((tmp_path / "rows.json").read_text())

    return call


@pytest.mark.full
def test_this_decoder_and_ctranslate2_have_complete_rows(call):
    rows = call("--beam-size", "2", "--batch", "1", "4", "--steps", "3")
    programs = [("ours", "float32"), ("ctranslate2", "float32"), ("ctranslate2", "int8")]
    shown = [(row["program"], row["precision"], row["beam_size"], row["batch"]) for row in rows]
    assert shown == [(*program, 2, batch) for batch in (1, 4) for program in programs]
    for row in rows:
        assert row["tokens_per_second"] == pytest.approx(3 * row["sentences_per_second"])
        ours = next(other for other in rows if other["program"] == "ours" and other["batch"] == row["batch"])
        assert row["ratio"] == pytest.approx(ours["tokens_per_second"] / row["tokens_per_second"])
