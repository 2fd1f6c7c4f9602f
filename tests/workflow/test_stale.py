"""Which stages `dvc repro` runs after an edit of code, with a warm cache and in a fresh clone."""

from __future__ import annotations

import compileall
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from support.projects import command, finished_project, prepared_project, runs


@pytest.fixture(scope="module")
def project(tmp_path_factory, shared_folder) -> Path:
    """A small project that was run once."""
    return shutil.copytree(finished_project(shared_folder), tmp_path_factory.mktemp("stale") / "project")


def stale(project: Path) -> set[str]:
    """The stages whose own dependencies, params or outs changed (dvc status)."""
    return set(json.loads(command(project, "dvc", "status", "--json")))


def ran(output: str) -> list[str]:
    """The stages that a command ran, from its output."""
    return re.findall(r"Running stage '(\w+)'", output)


@pytest.mark.full
def test_pythons_caches_make_no_stage_stale(project):
    compileall.compile_dir(project / "transformer", quiet=1)
    compileall.compile_dir(project / "pipeline", quiet=1)
    assert list(project.rglob("__pycache__"))
    assert stale(project) == set()


@pytest.mark.full
def test_after_clean_an_earlier_commit_is_restored_from_the_cache(shared_folder, tmp_path):
    folder = prepared_project(shared_folder, tmp_path / "project")
    command(folder, "dvc", "exp", "run", "-S", "warmup=3")
    command(folder, "git", "commit", "--quiet", "--all", "--message", "another warmup")
    command(folder, sys.executable, "-m", "pipeline", "clean", "--yes")
    for commit in ("HEAD~1", "-"):
        command(folder, "git", "checkout", "--quiet", "--force", commit)
        command(folder, "dvc", "checkout")
        assert stale(folder) == {"record"}
        assert ran(command(folder, "dvc", "repro")) == ["record"]
        assert command(folder, "git", "status", "--short") == ""
    assert {run.data.params["warmup"] for run in runs(folder)} == {"3", "4"}


@pytest.mark.full
def test_a_comment_resumes_the_training_and_other_code_restarts_it(project, tmp_path):
    clone = tmp_path / "clone"
    shutil.copytree(project, clone)
    train = (sys.executable, "-m", "pipeline.train")
    command(clone, *train)  # the first training in this folder
    job = clone / "pipeline/training/job.py"
    text = job.read_text(encoding="utf-8")
    job.write_text(f"{text}# a remark\n")
    output = command(clone, *train)
    assert "Resuming after update" in output
    assert not re.search(r"update \d+ of", output)
    job.write_text(f"{text}EDITED = True\n")
    output = command(clone, *train)
    assert "Training starts anew: pipeline.training.job changed since train-" in output
    assert re.search(r"update \d+ of", output)


@pytest.mark.full
def test_another_test_set_learns_nothing_again(project):
    with open(project / "own/test.de", "a") as german, open(project / "own/test.en", "a") as english:
        german.write("eins zwei.\n")
        english.write("one two.\n")
    stages = ran(command(project, "dvc", "repro"))
    assert stages[:3] == ["download", "filter", "tokenise"]
    assert {"translate", "score"} <= set(stages)
    assert not set(stages) & {"learn_bpe", "build_vocab", "train", "average"}
