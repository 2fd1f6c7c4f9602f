"""The check of a GPU: its parts are skipped with a reason, or shown as tables."""

from __future__ import annotations

import json
import sys

import pytest
import torch

from benchmarks import gpu
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
