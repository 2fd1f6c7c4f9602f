"""The benchmark of the stages before training runs them all on a made-up corpus."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import prepare


@pytest.mark.full
def test_each_stage_has_a_row_with_its_time_memory_and_word_types(monkeypatch):
    monkeypatch.setattr(prepare, "TYPES", 300)
    monkeypatch.setattr(prepare, "MERGES", 40)
    rows = list(prepare.rows_of(200, peers=False))
    assert [row["program"] for row in rows] == list(prepare.STAGES)
    assert all(row["seconds"] > 0 and row["memory_mb"] > 10 for row in rows)
    assert rows[-1]["types"] > 100


def test_the_made_up_corpus_has_the_frequencies_of_zipf(tmp_path, monkeypatch):
    monkeypatch.setattr(prepare, "TYPES", 5000)
    prepare.write_corpus(tmp_path / "raw", 2000)
    lines = (tmp_path / "raw/train.src").read_text().lower().replace(".", "").split("\n")[:-1]
    assert len(lines) == 2000
    assert 22 < np.mean([len(line.split()) for line in lines]) < 30
    words, counts = np.unique(" ".join(lines).split(), return_counts=True)
    first, second, *_, tenth = sorted(counts, reverse=True)[:10]
    assert 1.7 < first / second < 2.3
    assert 7 < first / tenth < 14
    assert len(words) > 2000
