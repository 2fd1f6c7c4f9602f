"""What deploy/ has for clusters is well-formed, and one line of a list of experiments becomes one experiment."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pipeline.experiments import clones
from pipeline.experiments.experiment_list import name_of, words_of
from support.projects import command, pipeline_command, shipped_project
from support.stages import wait_for_state
from support.tiny import ROOT

from pipeline.workflow.stage import MAIN_CHECKOUT


def hadolint(path: Path) -> int:
    """The exit status of hadolint for a Dockerfile; not 0 if it finds anything."""
    program = Path(sys.executable).with_name("hadolint")
    return subprocess.run([program, path], capture_output=True).returncode


def test_the_dockerfile_has_nothing_that_hadolint_finds(tmp_path):
    dockerfile = ROOT / "deploy/Dockerfile"
    assert hadolint(dockerfile) == 0
    wrong = tmp_path / "Dockerfile"
    wrong.write_text(dockerfile.read_text().replace(" --no-cache-dir", ""))
    assert hadolint(wrong) != 0


@pytest.mark.parametrize("path", sorted((ROOT / "deploy/slurm").iterdir()), ids=lambda path: path.name)
def test_a_slurm_script_is_well_formed(path):
    assert subprocess.run(["bash", "-n", path]).returncode == 0
    assert os.access(path, os.X_OK)


def test_an_experiment_is_named_by_its_options():
    name = name_of(["-S", "seed=1"], "my list.v2")
    assert name == name_of(["-S", "seed=1"], "my list.v2") != name_of(["-S", "seed=2"], "my list.v2")
    assert name.startswith("my-list-v2-")
    assert name_of(["-S", "seed=2", "--name", "wide"], "grid") == name_of(["-n", "wide"], "grid") == "wide"
    for name in ("..", "a/b"):
        with pytest.raises(ValueError, match="Choose another name"):
            name_of(["--name", name], "grid")
    with pytest.raises(ValueError, match="--name needs a name"):
        name_of(["-S", "seed=1", "--name"], "grid")


def test_a_line_has_options_as_in_a_shell_or_is_refused(tmp_path):
    path = tmp_path / "grid.txt"
    path.write_text("-S seed=1 # first\n-S 'test_sets=a b'\n\n# none\n--queue -S seed=1\n")
    assert [words_of(path, line) for line in (1, 2)] == [["-S", "seed=1"], ["-S", "test_sets=a b"]]
    for line in (0, 3, 4, 9):
        with pytest.raises(ValueError, match=f"grid.txt has no experiment on line {line}. Write"):
            words_of(path, line)
    with pytest.raises(ValueError, match=r"grid\.txt:5: --queue runs nothing"):
        words_of(path, 5)
    path.write_text("-S 'x\n")
    with pytest.raises(ValueError, match=r"grid.txt:1: .* is not a list of options"):
        words_of(path, 1)


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A project as shipped, with a list of an experiment that cannot be run."""
    folder = shipped_project(tmp_path_factory.mktemp("project") / "project")
    (folder / "grid.txt").write_text("-S warmup=abc\n")
    return folder


@pytest.mark.parametrize("setting", ["color.ui=always", "diff.noprefix=true"])
def test_a_clone_gets_edits_whatever_git_is_set_to(project, tmp_path, monkeypatch, setting):
    monkeypatch.setenv(MAIN_CHECKOUT, str(project))
    command(project, "git", "config", *setting.split("="))
    try:
        (project / "params.yaml").write_bytes((ROOT / "recipes/copy.yaml").read_bytes())
        (project / "new file.bin").write_bytes(b"new \xe4\0")
        command(project, "git", "add", "new file.bin")
        clones.clone(tmp_path / "clone", "HEAD", clones.edits_of_work_tree())
    finally:
        command(project, "git", "config", "--unset", setting.split("=")[0])
        command(project, "git", "reset", "--hard")
    assert (tmp_path / "clone/params.yaml").read_bytes() == (ROOT / "recipes/copy.yaml").read_bytes()
    assert (tmp_path / "clone/new file.bin").read_bytes() == b"new \xe4\0"


@pytest.mark.full
def test_an_experiment_that_fails_ends_in_a_line_and_leaves_nothing(project):
    shutil.copy(ROOT / "recipes/copy.yaml", project / "params.yaml")
    words = [sys.executable, "-m", "pipeline", "experiment", "grid.txt"]
    shown = command(project, *words, "1", status=1)
    assert "without the edits of params.yaml." in shown
    assert shown.rstrip().split("\n")[-1].startswith("error: The experiment grid-")
    assert {path.name for path in project.glob("work/experiment-*/*")} == {"lock"}
    assert not command(project, "git", "for-each-ref", "refs/exps", "refs/stash")


def test_a_line_or_commit_that_does_not_exist_is_named(project, capsys):
    words = ("experiment", "grid.txt")
    assert "no experiment on line 7" in pipeline_command(project, capsys, *words, "7", error=True)
    output = pipeline_command(project, capsys, *words, "1", "--commit", "none", error=True)
    assert "none is not an experiment, branch, tag or commit." in output


@pytest.mark.full
def test_sigterm_saves_an_experiment_and_the_same_command_goes_on(project):
    (project / "long.txt").write_text("-S max_steps=60 -S save_every=20 -S warmup=20 -S keep=2 -S average_last=2\n")
    words = [sys.executable, "-m", "pipeline", "experiment", "long.txt", "1"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("DVC_", "MLFLOW_"))}
    process = subprocess.Popen(words, cwd=project, env=environment)
    wait_for_state(project, process)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 143
    assert not list(project.glob("work/experiment-long-*/clone"))
    assert not command(project, "git", "for-each-ref", "refs/exps", "refs/stash")
    shown = command(project, *words)
    assert re.search("Resuming after update [1-9]", shown)
    assert "/long-" in command(project, "git", "for-each-ref", "refs/exps")
