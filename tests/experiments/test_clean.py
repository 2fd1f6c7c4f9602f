"""`make clean` frees space, prints how much, and keeps what is in use or not yet sent."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from filelock import FileLock
from support.projects import command
from support.runs import configuration, record
from support.tiny import stage

from pipeline.experiments import clean
from pipeline.git import cache_folder

DAY = 24 * 3600


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project whose work/ has folders of different ages."""
    for name, days in (("train-old", 40), ("train-new", 1), ("train-busy", 40), ("runs", 40)):
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
        done = stage("clean", root, "--days", "30", "--yes")
        assert done.returncode == 0, done.stderr
        assert done.stdout.split("\n") == [
            "train-busy is in use and is kept",
            "      2.0 MB  work/train-old",
            "2.0 MB freed",
            "",
        ]
    assert left(root) == ["runs", "train-busy", "train-new"]
    assert stage("clean", root, "--yes").stdout.endswith("4.0 MB freed\n")
    assert left(root) == ["runs"]


@pytest.mark.full
def test_clean_keeps_files_of_runs_and_models_of_every_store(tmp_path, monkeypatch, fresh_process):
    for uri in ("", f"sqlite:///{tmp_path}/other.db"):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        contents = {**configuration("key", "key"), "texts": {"report.html": "x" * 1000}}
        assert record(tmp_path, contents)
    before = sorted(path for path in (tmp_path / "mlartifacts").rglob("*") if path.is_file())
    assert len(before) == 2
    assert stage("clean", tmp_path, "--yes", env={"MLFLOW_TRACKING_URI": ""}).returncode == 0
    assert sorted(path for path in (tmp_path / "mlartifacts").rglob("*") if path.is_file()) == before


def test_a_negative_age_is_refused(tmp_path):
    done = stage("clean", tmp_path, "--days", "-1")
    assert done.returncode == 2
    assert "--days -1 must be 0 or more" in done.stderr


def test_clean_prints_what_it_would_remove_and_removes_nothing_before_somebody_agrees(root):
    before = left(root)
    done = stage("clean", root)
    assert done.returncode == 1
    assert "2.0 MB  work/train-old" in done.stdout
    assert "Nothing was removed, since nobody can answer here. In a script use --yes" in done.stderr
    assert left(root) == before


@pytest.fixture
def three_commits(tmp_path: Path) -> Path:
    """A DVC project of one stage, whose out is the knob; committed with the knob at 1, 2 and 3, and once run with 4."""
    root = tmp_path / "a project"
    root.mkdir()
    for words in (
        ("git", "init", "-q"),
        ("dvc", "init", "-q"),
        ("git", "config", "user.email", "a@b"),
        ("git", "config", "user.name", "a"),
    ):
        command(root, *words)
    (root / "dvc.yaml").write_text("stages:\n  copy: {cmd: cp knob out, deps: [knob], outs: [out]}\n")
    for knob in "1243":  # 4 is run, but not committed
        (root / "knob").write_text(knob * 1000)
        command(root, "dvc", "repro", "-q")
        if knob != "4":
            command(root, "git", "add", ".")
            command(root, "git", "commit", "-qm", knob)
    return root


def outs(root: Path) -> list[str]:
    """The knobs whose outs are in DVC's cache."""
    cache = Path(command(root, "dvc", "cache", "dir").strip()) / "files/md5"
    return sorted(path.read_text()[0] for path in cache.rglob("*") if path.is_file())


def test_clean_keeps_the_outs_of_every_commit_and_removes_what_no_commit_has(three_commits):
    assert outs(three_commits) == ["1", "2", "3", "4"]
    done = stage("clean", three_commits, "--days", "1", "--yes")
    assert done.stdout == "There is nothing to remove.\n"  # the out was made less than a day ago
    assert outs(three_commits) == ["1", "2", "3", "4"]
    assert "1 outs in DVC's cache" in stage("clean", three_commits, "--yes").stdout
    assert outs(three_commits) == ["1", "2", "3"]
    command(three_commits, "git", "checkout", "-q", "HEAD~2")
    command(three_commits, "dvc", "checkout")
    assert (three_commits / "out").read_text() == "1" * 1000


def test_clean_keeps_all_outs_while_dvc_or_a_stage_runs_in_the_project(three_commits):
    below = three_commits / ".dvc/tmp/exps"
    below.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)", "pipeline.train"]
    process = subprocess.Popen(words, cwd=below, stdout=subprocess.PIPE)
    try:
        assert process.stdout
        process.stdout.readline()
        done = stage("clean", three_commits, "--yes")
    finally:
        process.kill()
    assert f"DVC's cache is left as it is while this process runs: {process.pid}: " in done.stdout
    assert outs(three_commits) == ["1", "2", "3", "4"]


def test_clean_keeps_the_outs_of_stashes(three_commits):
    (three_commits / "knob").write_text("5" * 1000)
    command(three_commits, "dvc", "repro", "-q")
    command(three_commits, "git", "stash", "-q")
    assert stage("clean", three_commits, "--yes").returncode == 0
    assert outs(three_commits) == ["1", "2", "3", "5"]


def test_clean_keeps_outs_that_are_committed_while_it_asks(three_commits, monkeypatch):
    def answer() -> bool:
        (three_commits / "knob").write_text("4" * 1000)
        command(three_commits, "dvc", "repro", "-q")
        command(three_commits, "git", "commit", "-qam", "4")
        return True

    monkeypatch.chdir(three_commits)
    monkeypatch.setattr(clean, "agreed", answer)
    monkeypatch.setattr(sys, "argv", ["clean"])
    cache_folder.cache_clear()
    clean.main()
    cache_folder.cache_clear()
    assert outs(three_commits) == ["1", "2", "3", "4"]


def test_files_of_a_young_folder_in_the_cache_are_kept_though_they_are_old(tmp_path):
    for name in ("aa", "bb", "cc"):
        (tmp_path / name).mkdir()
    old, other, young = tmp_path / "aa/1", tmp_path / "bb/2", tmp_path / "cc/3.dir"
    old.write_text("x")
    other.write_text("x")
    young.write_text('[{"md5": "aa1", "relpath": "a"}]')
    os.utime(old, (0, 0))
    os.utime(other, (0, 0))
    assert clean.older([old, other, young], 1000) == [other]


def test_a_folder_in_which_a_process_runs_is_kept(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], cwd=tmp_path)
    try:
        assert clean.in_use(tmp_path)
    finally:
        process.kill()
        process.wait()
    assert not clean.in_use(tmp_path)


def test_a_stage_of_another_user_counts_as_running_since_its_folder_cannot_be_seen(tmp_path, monkeypatch):
    hidden = SimpleNamespace(info={"cwd": None, "cmdline": ["python", "-m", "pipeline.train"]}, pid=10**9)
    monkeypatch.setattr(clean.psutil, "process_iter", lambda _: [hidden])
    assert clean.running([tmp_path]) == "1000000000: python -m pipeline.train"


@pytest.mark.full
def test_a_cache_outside_the_project_is_left_as_it_is_unless_its_other_projects_are_named(three_commits, tmp_path):
    other = tmp_path / "other"
    command(tmp_path, "git", "clone", "-q", str(three_commits), str(other))
    for root in (three_commits, other):
        command(root, "dvc", "cache", "dir", "--local", str(tmp_path / "cache"))
    (other / "knob").write_text("5" * 1000)
    for root in (other, three_commits):
        command(root, "dvc", "repro", "-q")
    (other / "unneeded").write_text("6" * 1000)
    command(other, "dvc", "add", "-q", "unneeded")
    (other / "unneeded.dvc").unlink()
    assert outs(other) == ["3", "5", "6"]
    assert "is outside this project" in stage("clean", three_commits, "--yes").stdout
    assert outs(other) == ["3", "5", "6"]
    assert stage("clean", three_commits, "--yes", "--projects", str(other)).returncode == 0
    assert outs(other) == ["3", "5"]
