"""`clean` frees space, says what it removes, and keeps what is in use or what git names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from filelock import FileLock
from support.projects import command, commit_all
from support.tiny import stage

from pipeline.results import clean

DAY = 24 * 3600


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project whose work/ has folders of different ages."""
    for name, days in (("train-old", 40), ("train-new", 1), ("train-busy", 40)):
        folder = tmp_path / "work" / name
        folder.mkdir(parents=True)
        (folder / "content").write_bytes(bytes(2_000_000))
        os.utime(folder / "content", (time.time() - days * DAY,) * 2)
    return tmp_path


def cleaned(root: Path, *options: str) -> subprocess.CompletedProcess:
    """Run `python -m pipeline clean`."""
    return stage("__main__", root, "clean", *options)


def left(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "work").iterdir())


def test_clean_removes_by_age_and_keeps_what_is_in_use(root):
    with FileLock(root / "work/train-busy/lock"):
        os.utime(root / "work/train-busy/lock", (0, 0))
        done = cleaned(root, "--days", "30", "--yes")
        assert done.returncode == 0, done.stderr
        assert done.stdout.split("\n") == [
            "train-busy is in use and is kept",
            "      2.0 MB  work/train-old",
            "2.0 MB freed",
            "",
        ]
        assert not clean.remove(root / "work/train-busy")
    assert left(root) == ["train-busy", "train-new"]
    assert cleaned(root, "--yes").stdout.endswith("4.0 MB freed\n")
    assert left(root) == []


def test_clean_removes_nothing_before_somebody_agrees(root):
    before = left(root)
    done = cleaned(root)
    assert done.returncode == 1
    assert "2.0 MB  work/train-old" in done.stdout
    assert "Nothing was removed, since nobody can answer here. In a script use --yes" in done.stderr
    assert left(root) == before
    done = cleaned(root, "--days", "-1")
    assert (done.returncode, "--days -1 must be 0 or more" in done.stderr) == (2, True)


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    """A DVC project of one stage, whose out is a folder with the knob.

    It is committed with the knob at 1, 2 and 3, on a branch at 4, in two stashes at 5 and 8, and in an older entry of
    DVC's queue at 9; then it was run with 7, of which nothing is left, and with 6.
    """
    root = tmp_path_factory.mktemp("template") / "a project"
    root.mkdir()
    command(root, "git", "init", "-q")
    command(root, "dvc", "init", "-q")
    copy = "{cmd: mkdir out && cat knob knob > out/knob, deps: [knob], outs: [out]}"
    (root / "dvc.yaml").write_text(f"stages:\n  copy: {copy}\n")
    (root / "knob").write_text("0")
    commit_all(root)
    for knob in "1234589":
        ran(root, knob)
        if knob == "4":
            command(root, "git", "checkout", "-qb", "side")
        command(root, "git", *(["stash", "-q"] if knob in "589" else ["commit", "-qam", knob]))
        if knob == "4":
            command(root, "git", "checkout", "-q", "-")
    queue = ("git", "update-ref", "--create-reflog", "refs/exps/celery/stash")
    command(root, *queue, "stash@{0}")
    command(root, *queue, "HEAD")  # a newer entry: only the reflog has the older one
    command(root, "git", "stash", "drop", "-q")
    ran(root, "7")
    ran(root, "6")
    return root


def ran(root: Path, knob: str) -> None:
    (root / "knob").write_text(knob * 1000)
    command(root, "dvc", "repro", "-q")
    command(root, "git", "add", "-A")


@pytest.fixture
def project(template, tmp_path) -> Path:
    shutil.copytree(template, tmp_path / "a project", symlinks=True)
    return tmp_path / "a project"


def outs(root: Path) -> str:
    """The knobs whose outs are in DVC's cache."""
    cache = Path(command(root, "dvc", "cache", "dir").strip()) / "files/md5"
    return "".join(sorted(path.read_text()[0] for path in cache.rglob("*") if path.is_file() and not path.suffix))


def test_clean_keeps_the_outs_that_git_or_the_work_tree_names(project):
    assert outs(project) == "123456789"
    assert "2 outs in DVC's cache" in cleaned(project, "--yes").stdout  # the folder and its file
    assert outs(project) == "12345689"
    command(project, "git", "stash", "-q")
    command(project, "git", "checkout", "-q", "HEAD~2")
    command(project, "dvc", "checkout")
    assert (project / "out/knob").read_text() == "1" * 2000


def test_clean_keeps_all_outs_while_a_stage_runs_in_the_project(project):
    below = project / ".dvc/tmp/exps"
    below.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)", "pipeline.train"]
    process = subprocess.Popen(words, cwd=below, stdout=subprocess.PIPE)
    try:
        assert process.stdout
        process.stdout.readline()
        done = cleaned(project, "--yes")
        assert clean.is_used(below)
    finally:
        process.kill()
        process.wait()
    assert f"DVC's cache is left as it is while this process runs: {process.pid}: " in done.stdout
    assert outs(project) == "123456789"
    assert not clean.is_used(below)


def test_clean_keeps_all_outs_while_work_is_in_use(project):
    (project / "work/experiment-a").mkdir(parents=True)
    with FileLock(project / "work/experiment-a/lock"):
        assert "DVC's cache is left as it is while work/ is in use." in cleaned(project, "--yes").stdout
    assert outs(project) == "123456789"


def test_clean_keeps_outs_that_are_committed_while_it_asks(project, monkeypatch):
    def answer() -> bool:
        ran(project, "7")
        command(project, "git", "commit", "-qm", "7")
        return True

    monkeypatch.chdir(project)
    monkeypatch.setattr(clean, "agreed", answer)
    monkeypatch.setattr(sys, "argv", ["clean"])
    clean.main()
    assert outs(project) == "123456789"  # 6 was in the work tree when the question was asked


def test_a_stage_whose_folder_cannot_be_seen_counts_as_running(tmp_path, monkeypatch):
    hidden = SimpleNamespace(info={"cwd": None, "cmdline": ["python", "-m", "pipeline.train"]}, pid=10**9)
    monkeypatch.setattr(clean.psutil, "process_iter", lambda _: [hidden])
    assert clean.running(tmp_path) == "1000000000: python -m pipeline.train"


@pytest.mark.full
def test_a_cache_outside_the_project_is_left_to_dvc_gc(project, tmp_path):
    shutil.move(project / ".dvc/cache", tmp_path / "cache")
    command(project, "dvc", "cache", "dir", "--local", str(tmp_path / "cache"))
    output = cleaned(project, "--yes").stdout
    assert "is outside this project" in output
    assert "dvc gc --all-commits --all-experiments --projects" in output
    assert outs(project) == "123456789"
