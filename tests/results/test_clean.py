"""`clean` frees space, says what it removes, and keeps what is in use or what git names."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from filelock import FileLock
from support.projects import command, commit_all
from support.tiny import stage

DAY = 24 * 3600


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    """A DVC project of one stage, whose out has the knob: 1 and 2 are committed, 3 is of nobody, 4 of the work tree."""
    root = tmp_path_factory.mktemp("template") / "a project"
    root.mkdir()
    command(root, "git", "init", "-q")
    command(root, "dvc", "init", "-q")
    copy = "{cmd: mkdir out && cat knob > out/knob, deps: [knob], outs: [out]}"
    (root / "dvc.yaml").write_text(f"stages:\n  copy: {copy}\n")
    (root / ".gitignore").write_text("/out\nwork/\n")
    commit_all(root)
    for knob in "1234":
        run_with(root, knob)
        if knob in "12":
            command(root, "git", "add", "-A")
            command(root, "git", "commit", "-qm", knob)
    for name, days in (("train-old", 40), ("train-new", 1), ("train-busy", 40)):
        folder = root / "work" / name
        folder.mkdir(parents=True)
        (folder / "content").write_bytes(bytes(2_000_000))
        os.utime(folder / "content", (time.time() - days * DAY,) * 2)
    return root


def run_with(root: Path, knob: str) -> None:
    (root / "knob").write_text(knob * 1000)
    command(root, "dvc", "repro", "-q")


@pytest.fixture
def project(template, tmp_path) -> Path:
    shutil.copytree(template, tmp_path / "a project", symlinks=True)
    return tmp_path / "a project"


def cleaned(root: Path, *options: str) -> subprocess.CompletedProcess:
    """Run `python -m pipeline clean`."""
    return stage("__main__", root, "clean", *options)


def left(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "work").iterdir() if path.is_dir())


def outs(root: Path) -> str:
    """The knobs whose outs are in DVC's cache."""
    cache = root / ".dvc/cache/files/md5"
    return "".join(sorted(path.read_text()[0] for path in cache.rglob("*") if path.is_file() and not path.suffix))


def test_clean_removes_what_is_old_and_what_nothing_names(project):
    assert outs(project) == "1234"
    with FileLock(project / "work/train-busy/lock"):
        os.utime(project / "work/train-busy/lock", (0, 0))
        done = cleaned(project, "--days", "30", "--yes")
        assert done.returncode == 0, done.stderr
        assert "train-busy is in use and is kept\n      2.0 MB  work/train-old\n" in done.stdout
    assert left(project) == ["train-busy", "train-new"]
    assert outs(project) == "1234"  # a training that runs may have made some
    cleaned(project, "--days", "30", "--yes")
    assert outs(project) == "124"


def test_clean_removes_nothing_before_somebody_agrees(project):
    done = cleaned(project)
    assert done.returncode == 1
    assert "2.0 MB  work/train-old" in done.stdout
    assert "Nothing was removed, since nobody can answer here. In a script use --yes" in done.stderr
    assert (left(project), outs(project)) == (["train-busy", "train-new", "train-old"], "1234")
    done = cleaned(project, "--days", "-1")
    assert (done.returncode, "--days -1 must be 0 or more" in done.stderr) == (2, True)


def test_clean_keeps_the_outs_of_another_work_tree(project, tmp_path):
    other = tmp_path / "other"
    command(project, "git", "worktree", "add", "-q", "--detach", str(other))
    command(other, "dvc", "cache", "dir", "--local", str(project / ".dvc/cache"))
    run_with(other, "3")
    assert cleaned(project, "--yes").returncode == 0
    assert outs(project) == "1234"


def test_clean_keeps_the_outs_of_merged_branches_and_of_stashes(project):
    command(project, "git", "stash", "-q")  # 4
    run_with(project, "5")
    command(project, "git", "stash", "-q")
    command(project, "git", "checkout", "-q", "-b", "side", "HEAD~1")
    run_with(project, "3")
    command(project, "git", "commit", "-qam", "3")
    command(project, "git", "checkout", "-q", "-")
    command(project, "git", "merge", "-q", "-s", "ours", "side")
    command(project, "git", "branch", "-D", "side")
    assert "reading which outs " in cleaned(project, "--yes").stdout
    assert outs(project) == "12345"
    command(project, "git", "stash", "drop", "stash@{1}")
    assert "2 files were removed" in cleaned(project, "--yes").stdout  # the file and its folder
    assert outs(project) == "1235"


def test_clean_keeps_what_an_old_commit_added_by_dvc_add(project):
    for text in "67":
        (project / "own").write_text(text)
        command(project, "dvc", "add", "-q", "own")
        command(project, "git", "add", "own.dvc", ".gitignore")
        command(project, "git", "commit", "-qm", text, "own.dvc", ".gitignore")
    assert cleaned(project, "--yes").returncode == 0
    assert outs(project) == "12467"


def test_clean_refuses_while_experiments_are_queued(project):
    command(project, "dvc", "exp", "run", "--queue")
    done = cleaned(project, "--yes")
    assert (done.returncode, "1 experiments are queued or run" in done.stderr) == (1, True)
    assert (len(left(project)), outs(project)) == (3, "1234")


def test_clean_leaves_a_cache_outside_the_project_alone(project, tmp_path):
    shutil.move(project / ".dvc/cache", tmp_path / "cache")
    command(project, "dvc", "cache", "dir", "--local", str(tmp_path / "cache"))
    done = cleaned(project, "--yes")
    assert done.returncode == 1
    assert "is outside this project" in done.stderr
    assert len(left(project)) == 3


def test_clean_keeps_the_locks_of_gpus(project):
    (project / "work/gpus/host").mkdir(parents=True)
    (project / "work/gpus/host/0.lock").touch()
    assert cleaned(project, "--yes").returncode == 0
    assert left(project) == ["gpus"]
