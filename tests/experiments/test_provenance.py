"""Whether dvc.lock belongs to the files of a commit: no edit is missed, and no untouched result is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.projects import command

from pipeline.experiments.provenance import blob_code_key, checked_out_md5, parsed
from pipeline.tracking.results import Experiment

STAGES = "stages:\n  copy: {cmd: cat corpus/a > out, deps: [DEP, code], params: [knob], outs: [out]}\n"


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    """A repository with one stage that reads a folder, not run yet."""
    root = tmp_path_factory.mktemp("template") / "root"
    (root / "corpus").mkdir(parents=True)
    (root / "code").mkdir()
    (root / "corpus/a").write_text("eins\n")
    (root / "code/some.py").write_text("x = 1\n")
    (root / "params.yaml").write_text("knob: 1\nother: 1\n")
    (root / "dvc.yaml").write_text(STAGES.replace("DEP", "corpus"))
    for words in (
        ("git", "init", "-q"),
        ("dvc", "init", "-q"),
        ("git", "config", "user.email", "a@b"),
        ("git", "config", "user.name", "a"),
    ):
        command(root, *words)
    return root


@pytest.fixture
def root(template, tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "root"
    shutil.copytree(template, folder, symlinks=True)
    monkeypatch.chdir(folder)
    checked_out_md5.cache_clear()
    return folder


def ran(root: Path) -> None:
    """Run the stage and commit its results."""
    command(root, "dvc", "repro", "-q")
    command(root, "git", "add", "-A")
    command(root, "git", "commit", "-qm", "run")


def edited(root: Path, file: str, text: str) -> None:
    """Write a file and commit it, without running the stage."""
    (root / file).write_text(text)
    command(root, "git", "add", "-A")
    command(root, "git", "commit", "-qm", "edit")


@pytest.mark.parametrize(
    ("file", "text", "stale"),
    [
        ("dvc.yaml", STAGES.replace("DEP", "corpus").replace("cat ", "cat -n "), "copy (changed command)"),
        ("corpus/a", "zwei\n", "copy (corpus)"),
        ("params.yaml", "knob: 2\nother: 1\n", "copy (knob)"),
        ("params.yaml", "knob: 1\nother: 2\n", ""),
        ("code/some.py", "x = (\n", "copy (code)"),
    ],
)
def test_a_committed_edit_makes_the_results_stale_if_it_can_change_them(root, file, text, stale):
    ran(root)
    assert Experiment("HEAD").stale() == ""
    edited(root, file, text)
    assert Experiment("HEAD").stale() == stale


def test_a_folder_with_a_slash_at_its_end_is_compared(root):
    (root / "dvc.yaml").write_text(STAGES.replace("DEP", "corpus/"))
    ran(root)
    assert Experiment("HEAD").stale() == ""
    edited(root, "corpus/a", "zwei\n")
    assert "corpus" in Experiment("HEAD").stale()


def test_a_folder_of_dvc_add_is_compared(root):
    command(root, "dvc", "add", "-q", "corpus")
    ran(root)
    assert Experiment("HEAD").stale() == ""
    (root / "corpus/a").unlink()
    (root / "corpus/a").write_text("zwei\n")
    command(root, "dvc", "add", "-q", "corpus")
    command(root, "git", "add", "-A")
    command(root, "git", "commit", "-qm", "edit")
    assert Experiment("HEAD").stale() == "copy (corpus)"


def linked_file(root: Path) -> None:
    (root / "corpus/a").rename(root / "elsewhere")
    (root / "corpus/a").symlink_to("../elsewhere")


def linked_folder(root: Path) -> None:
    (root / "corpus").rename(root / "elsewhere")
    (root / "corpus").symlink_to("elsewhere")


def converted_ends(root: Path) -> None:
    (root / ".gitattributes").write_text("* text=auto\n")
    (root / "corpus/a").write_bytes(b"eins\r\n")


def ignored_file(root: Path) -> None:
    (root / ".gitignore").write_text(".DS_Store\n")
    (root / "corpus/.DS_Store").write_text("x")


@pytest.mark.parametrize("kind", [linked_file, linked_folder, converted_ends, ignored_file])
def test_a_corpus_that_git_holds_in_other_bytes_is_not_stale_and_its_edit_is(root, kind):
    kind(root)
    ran(root)
    command(root, "git", "commit", "-q", "--allow-empty", "-m", "later")
    assert Experiment("HEAD").stale() == Experiment("HEAD~1").stale() == ""
    edited(root, "corpus/a", "zwei\n")
    checked_out_md5.cache_clear()
    assert Experiment("HEAD").stale() == "copy (corpus)"


def test_a_file_that_is_no_python_and_a_lock_with_conflicts_end_in_no_traceback(root):
    ran(root)
    (root / "code/half.py").write_text("def half(:\n")
    ran(root)
    assert {blob_code_key(blob) for blob in [command(root, "git", "rev-parse", "HEAD:code/half.py").strip()]}
    with pytest.raises(ValueError, match="not valid YAML"):
        parsed("<<<<<<< HEAD\na: 1\n=======\n")
