"""compare and summary refuse stale results, and name what differs besides the knobs: text, code and versions."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from pipeline.experiments.provenance import blob_md5, md5
from support.projects import command, params_file, prepared_project

from pipeline import versions
from pipeline.tracking.results import Experiment, WorkTree

COMMAND = (sys.executable, "-m", "pipeline")


@pytest.fixture(scope="module")
def project(tmp_path_factory, shared_folder) -> Path:
    """A small project that was run once, with its results committed."""
    folder = prepared_project(shared_folder, tmp_path_factory.mktemp("like") / "project")
    command(folder, "git", "tag", "first")
    return folder


def replaced(file: Path, old: str, new: str) -> None:
    """Replace the first occurrence of a text in a file."""
    text = file.read_text(encoding="utf-8")
    assert old in text, file
    file.write_text(text.replace(old, new, 1), encoding="utf-8")


def commit_results(project: Path, tag: str, bleu: float) -> None:
    """Commit the files as they are with these scores, as if `dvc repro` had just made the results from them."""
    scores = json.loads((project / "reports/scores.json").read_text()) | {"bleu": bleu, "valid_bleu": bleu}
    (project / "reports/scores.json").write_text(json.dumps(scores))
    command(project, "dvc", "commit", "--force", "--quiet")
    command(project, "git", "add", "-A")
    command(project, "git", "commit", "-qm", tag)
    command(project, "git", "tag", tag)


@pytest.fixture(scope="module")
def edited(project) -> Path:
    """The project with a result after each of four edits: a knob alone, the loss, the versions, and the text."""
    params_file(project, warmup=8)
    commit_results(project, "knob", 40.0)
    replaced(project / "transformer/training/loss.py", "label_smoothing", "label_smoothing  ")
    replaced(project / "transformer/training/loss.py", "import torch", "import torch\n\nEDITED = True")
    params_file(project, warmup=16)
    commit_results(project, "loss", 50.0)
    versions_file = project / versions.RECORD
    versions_file.write_text(versions.text(versions.recorded(project) | {"torch": "2.12.0"}))
    commit_results(project, "torch", 60.0)
    for file in (project / "own/train.de", project / "data/raw/train.src"):
        file.chmod(0o644)
        file.write_text(file.read_text().replace("eins", "null"))
    commit_results(project, "text", 70.0)
    return project


def test_the_md5_of_a_folder_or_file_of_a_commit_is_that_of_dvc_lock(project, monkeypatch):
    monkeypatch.chdir(project)
    first = Experiment("first")
    deps = {dep["path"]: dep["md5"] for entry in first.lock().values() for dep in entry["deps"]}
    found = {path: md5(first.commit, path) for path in deps if not path.startswith(("data/", "reports/"))}
    assert found == {path: deps[path] for path in found}
    assert {"transformer/model", "own", "pipeline/train.py"} <= found.keys()
    blob_md5.cache_clear()


def test_results_of_untouched_files_are_not_stale(project, monkeypatch):
    monkeypatch.chdir(project)
    assert Experiment("first").stale() == ""
    assert WorkTree().stale() == ""


EDITS = [
    ("params.yaml", "beam_size: 4", "beam_size: 5", "translate (beam_size), report (beam_size)"),
    ("transformer/training/loss.py", "import torch", "import torch  #", "train (transformer/training)"),
    ("versions.yaml", 'sacrebleu: "', 'sacrebleu: "1.', "score (sacrebleu)"),
    ("own/valid.de", "eins", "null", "download (own)"),
    ("reports/scores.json", "1", "2", "score (reports/scores.json)"),
]


@pytest.fixture
def clone(project, tmp_path) -> Path:
    """A clone of the first result."""
    folder = tmp_path / "clone"
    command(tmp_path, "git", "clone", "-q", "--branch", "first", str(project), str(folder))
    command(folder, "git", "config", "user.name", "t")
    command(folder, "git", "config", "user.email", "t@t")
    return folder


@pytest.mark.parametrize(("file", "old", "new", "wanted"), EDITS)
def test_a_commit_with_an_edit_that_no_run_followed_is_stale(clone, monkeypatch, file, old, new, wanted):
    replaced(clone / file, old, new)
    command(clone, "git", "commit", "-qam", "edited")
    monkeypatch.chdir(clone)
    assert wanted in Experiment("HEAD").stale()
    assert Experiment("first").stale() == ""
    output = command(clone, *COMMAND, "compare", "first", "HEAD", status=1)
    assert output.startswith("error: The results of HEAD are not those of its files. `dvc repro` would run again: ")
    assert wanted in output


@pytest.mark.full
@pytest.mark.parametrize(("file", "old", "new", "wanted"), EDITS)
def test_a_work_tree_with_an_edit_that_no_run_followed_is_stale(project, clone, monkeypatch, file, old, new, wanted):
    command(clone, "dvc", "cache", "dir", "--local", str(project / ".dvc/cache"))
    command(clone, "dvc", "checkout", "-q")
    replaced(clone / file, old, new)
    monkeypatch.chdir(clone)
    assert wanted.split(" ")[0] in WorkTree().stale()
    output = command(clone, *COMMAND, "compare", "first", "workspace", status=1)
    assert re.fullmatch(r"error: The results of workspace are not those of its files\. .*\n", output)
    assert "left out: workspace is stale" in command(clone, *COMMAND, "summary")


def test_compare_names_the_edited_text_loss_and_version_beside_the_knob(edited):
    output = command(edited, *COMMAND, "compare", "first", "knob", "loss", "torch", "text")
    rows = {row["name"]: row for row in json.loads((edited / "reports/comparison.json").read_text())["systems"]}
    assert "differs_also_in" not in rows["knob"]
    assert rows["loss"]["differs_also_in"] == "code: transformer/training/loss.py"
    assert rows["torch"]["differs_also_in"].endswith("versions: torch 2.13.0 -> 2.12.0")
    assert rows["text"]["differs_also_in"].startswith("data: data/raw; code: transformer/training/loss.py; versions:")
    assert "\nloss and first differ also in code: transformer/training/loss.py\n" in output
    assert "p_bootstrap_holm" in rows["knob"]


def test_summary_measures_a_knob_only_between_results_of_the_same_text_code_and_versions(edited):
    output = command(edited, *COMMAND, "summary")
    effects = output.partition("effect of each knob")[2]
    assert re.search(r"warmup +4 +8 +1 ", effects)
    assert not re.search(r"warmup +(4|8) +16 ", effects)
    head = output.split("\n")[0].split()
    assert {"data", "code", "versions"} <= set(head)
    assert "differ also in" in output


@pytest.mark.full
def test_a_record_that_is_signed_is_read_where_git_shows_signatures(edited):
    command(edited, "git", "config", "log.showSignature", "true")
    try:
        assert "warmup" in command(edited, *COMMAND, "summary")
        assert "left out" not in command(edited, *COMMAND, "track")
    finally:
        command(edited, "git", "config", "--unset", "log.showSignature")


def test_without_git_a_command_says_so_in_one_line(project, tmp_path):
    output = command(project, *COMMAND, "compare", "first", "HEAD", status=1, PATH=str(tmp_path))
    assert output == "error: git is not installed, or not in PATH. Install it: experiments are kept in git.\n"


@pytest.mark.full
def test_results_from_before_a_knob_are_read_with_the_value_that_it_then_had(project, clone):
    """A project of today with one more knob, and one that was renamed, reads results of before."""
    command(clone, "dvc", "cache", "dir", "--local", str(project / ".dvc/cache"))
    before = command(clone, sys.executable, "-c", KEYS)
    params = clone / "pipeline/params.py"
    replaced(params, "replace_unk: bool = knob()", "replace_unk: bool = knob()\n    coverage: float = knob(before=0.0)")
    replaced(params, "    warmup: int = knob(least=1)", "    rise: int = knob(least=1, formerly='warmup')")
    assert command(clone, sys.executable, "-c", KEYS) == before
    output = command(clone, *COMMAND, "summary")
    assert re.search(r"^ *[0-9a-f]{10} ", output, re.MULTILINE)
    assert "left out: workspace" in output
    assert not re.search(r"left out: [0-9a-f]{10}", output)


KEYS = """
from pipeline.tracking.results import Experiment
from pipeline.tracking.content import run_keys
print(run_keys(Experiment("first")), Experiment("first").scored().scores)
"""
