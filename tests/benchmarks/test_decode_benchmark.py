"""The decoding benchmark's rows are complete. Times are not checked."""

from __future__ import annotations

import json

import pytest
from support.tiny import TEXT, model_folder

from benchmarks import decode
from transformer.files import write_lines
from transformer.inference.ctranslate2_export import add_export


@pytest.mark.full
def test_both_engines_have_complete_rows(tmp_path, monkeypatch):
    folder = model_folder(tmp_path / "model", spread=0.6)
    add_export(folder, folder, "float32")
    write_lines(tmp_path / "text", TEXT * 3)
    paths = [str(tmp_path / name) for name in ("model", "text")]
    options = ["--rounds", "1", "--seconds", "0.01", "--beam-size", "2", "--json", str(tmp_path / "rows.json")]
    monkeypatch.setattr("sys.argv", ["decode", *paths, *options])
    decode.main()
    rows = json.loads((tmp_path / "rows.json").read_text())
    engines = ["torch", "ctranslate2"]
    assert [(row["engine"], row["beam_size"], row["batch"]) for row in rows] == [
        (e, 2, b) for b in (1, 128) for e in engines
    ]
    for torch, ctranslate2 in (rows[:2], rows[2:]):
        assert torch["ratio"] == 1
        assert ctranslate2["ratio"] == pytest.approx(ctranslate2["lines_per_second"] / torch["lines_per_second"])
