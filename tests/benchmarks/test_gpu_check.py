"""The check of a GPU: its parts are skipped with a reason, merged into one file and shown on a page."""

from __future__ import annotations

import json
import sys

import pytest
import torch

from benchmarks import gpu, gpu_parts
from benchmarks.flops import Size
from benchmarks.gpu_page import page, title
from benchmarks.gpu_parts import PARTS


def check(monkeypatch, *options: str) -> None:
    """Run `python -m benchmarks.gpu` with these options."""
    monkeypatch.setattr(sys, "argv", ["gpu", *options])
    gpu.main()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_every_part_is_skipped_with_its_reason(monkeypatch, tmp_path):
    file, text = tmp_path / "gpu.json", tmp_path / "gpu.md"
    monkeypatch.setattr(gpu, "run_apart", lambda part, seconds: gpu.run_here(part))
    check(monkeypatch, "--json", str(file), "--page", str(text))
    assert list(json.loads(file.read_text())) == list(PARTS)
    assert f"- skipped, because torch finds no CUDA device: {', '.join(PARTS)}\n" in text.read_text()


@pytest.mark.full
def test_losses_and_decoding_compute_their_rows(monkeypatch):
    """On a CPU here; on a GPU the same code runs there."""
    monkeypatch.setattr(gpu_parts, "DEVICE", torch.device("cpu"))
    monkeypatch.setattr(gpu_parts, "VOCABULARY", 200)
    monkeypatch.setattr(gpu_parts, "DECODED_BATCHES", (1, 3))
    monkeypatch.setitem(gpu_parts.SIZES, "base", Size(16, 32, 2, 1))
    rows = {row["precision"]: row["largest relative difference"] for row in gpu_parts.losses(updates=3)}
    assert rows["float64"] == 0
    assert rows["float32"] < 1e-3
    assert rows["bfloat16"] < 0.1
    rates = gpu_parts.decoding(seconds=0.01)
    assert len(rates) == 2 * 2 * 2
    assert all(row["sentences/s"] > 0 for row in rates)


def test_the_page_shows_each_part_under_its_heading():
    assert title("speed-big-100k") == "Training speed, big model, 100,000 tokens an update, beside torch's own layers"
    outcome = {
        "rows": [{"program": "ours", "tokens_per_second": 123456.7, "matrix_share": 0.4, "rounds": [1, 2]}],
        "machine": {"device": "1 x H", "torch": "2.13"},
        "seconds": 40,
    }
    text = page({"profile": outcome, "losses": {"failed": "it broke"}}, ["losses", "profile", "toy"])
    assert "| program | tokens per second | matrix share |\n| --- | --- | --- |\n| ours | 123,457 | 40.0% |" in text
    assert "1 x H, torch 2.13. The part took 40 s." in text
    assert "## Not measured\n\n- failed, because it broke: losses\n- skipped, because it was not run: toy\n" in text
