"""The check of a GPU: its parts are skipped with a reason, or shown as tables."""

from __future__ import annotations

import json
import sys

import pytest
import torch

from benchmarks import gpu, gpu_parts
from benchmarks.flops import Size
from benchmarks.gpu_parts import PARTS


def check(monkeypatch, *options: str) -> None:
    """Run `python -m benchmarks.gpu` with these options."""
    monkeypatch.setattr(sys, "argv", ["gpu", *options])
    gpu.main()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_every_part_is_skipped_with_its_reason(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gpu, "run_apart", lambda part, seconds: gpu.run_here(part))
    check(monkeypatch, "--json", str(tmp_path / "gpu.json"))
    assert list(json.loads((tmp_path / "gpu.json").read_text())) == list(PARTS)
    assert capsys.readouterr().out.count("torch finds no CUDA device") == len(PARTS)


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
