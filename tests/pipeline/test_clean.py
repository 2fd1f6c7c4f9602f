"""`make clean` frees space, prints how much, and keeps what is in use or not yet sent."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from filelock import FileLock
from support.runs import configuration
from support.tiny import stage

from transformer.tracking import recorder
from transformer.tracking import store as tracking

DAY = 24 * 3600


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project whose work/ has folders of different ages."""
    for name, days in (("train-old", 40), ("train-new", 1), ("train-busy", 40), ("outbox", 40), ("journal", 40)):
        folder = tmp_path / "work" / name
        folder.mkdir(parents=True)
        (folder / "content").write_bytes(bytes(2_000_000))
        os.utime(folder / "content", (time.time() - days * DAY,) * 2)
    return tmp_path


def left(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "work").iterdir())


def test_clean_removes_by_age_prints_what_it_freed_and_keeps_what_is_in_use(root):
    with FileLock(root / "work/train-busy/lock"):
        os.utime(root / "work/train-busy/lock", (0, 0))
        done = stage("clean", root, "--days", "30")
        assert done.returncode == 0, done.stderr
        assert done.stdout.split("\n") == [
            "work/train-busy is in use and was kept", "      2.0 MB  work/train-old", "2.0 MB freed", ""]  # fmt: skip
    assert left(root) == ["journal", "outbox", "train-busy", "train-new"]
    assert stage("clean", root).stdout.endswith("4.0 MB freed\n")
    assert left(root) == ["journal", "outbox"]


def test_clean_removes_files_of_deleted_runs_and_keeps_those_of_all_experiments(tmp_path, monkeypatch, fresh_process):
    for experiment in ("one", "two"):
        monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", experiment)
        monkeypatch.setattr(tracking, "_stores", {})
        contents = {**configuration(experiment, experiment), "texts": {"report.html": "x" * 1000}}
        assert recorder.record_configuration(tmp_path, contents)
    (tmp_path / "mlartifacts" / ("0" * 32)).mkdir()
    (tmp_path / "mlartifacts" / ("0" * 32) / "report.html").write_text("of a deleted run")
    (tmp_path / "mlartifacts" / "mine").mkdir()
    assert stage("clean", tmp_path).returncode == 0
    kept = sorted(path.name for path in (tmp_path / "mlartifacts").iterdir())
    assert len(kept) == 3
    assert "0" * 32 not in kept


def test_a_negative_age_is_refused(tmp_path):
    done = stage("clean", tmp_path, "--days", "-1")
    assert done.returncode == 2
    assert "--days -1 must be 0 or more" in done.stderr
