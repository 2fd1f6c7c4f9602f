"""uncommitted.patch of a run: the edits of code that are in no commit, and nothing else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.projects import command, commit_all

from pipeline.tracking import content as configuration


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with code and a corpus, in the current folder."""
    for name in ("transformer/code.py", "pipeline/workflow/stage.py", "corpus/train.de", "params.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("first\n")
    commit_all(tmp_path)
    monkeypatch.chdir(tmp_path)
    configuration.uncommitted.cache_clear()
    yield tmp_path
    configuration.uncommitted.cache_clear()


def test_edits_of_text_and_params_are_no_edits_of_code(project):
    for name in ("corpus/train.de", "params.yaml", "notes.txt"):
        (project / name).write_text("private\n")
    assert configuration.uncommitted() == ""
    assert "git_dirty" not in configuration.origin()


@pytest.mark.parametrize("setting", ["color.ui=always", "diff.noprefix=true"])
def test_edits_and_new_files_of_code_are_a_patch_that_git_applies_whatever_git_is_set_to(project, setting):
    command(project, "git", "config", *setting.split("="))
    (project / "transformer/code.py").write_bytes(b"second \xe4\n")
    (project / "pipeline/new.py").write_text("new\n")
    assert configuration.origin()["git_dirty"] == "true"
    patch = configuration.uncommitted()
    assert "second" in patch
    command(project, "git", "stash", "--include-untracked")
    subprocess.run(["git", "apply", "-"], input=patch.encode(), check=True, cwd=project)
    assert (project / "pipeline/new.py").read_text() == "new\n"
