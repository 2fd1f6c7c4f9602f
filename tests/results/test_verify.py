"""`python -m pipeline verify` repeats a commit in a clean clone and says which outs are the same."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.projects import command, commit_all
from support.tiny import ROOT

from pipeline.results import verify
from pipeline.results.verify import own_clone
from pipeline.workflow.dvc_lock import Result, result_of

MD5 = 31 * "0"
SCORES = {"bleu": 98.8, "valid_bleu": 97.2}


def write_project(folder: Path, deps: dict[str, str], scores: dict[str, float] = SCORES, model: str = "1") -> Result:
    """A project with a dvc.lock of one stage. deps: path -> the last digit of its md5."""
    (folder / ".dvc").mkdir(parents=True, exist_ok=True)
    (folder / ".dvc/config").touch()
    (folder / "reports").mkdir(exist_ok=True)
    (folder / "reports/scores.json").write_text(json.dumps(scores))
    (folder / "reports/environment.json").write_text(json.dumps({"cpu": "A", "threads": 2}))
    outs = ["data/model", "data/hypotheses", "reports/report.html", "reports/scores.json", "reports/environment.json"]
    entry = {
        "deps": [{"path": path, "md5": MD5 + md5} for path, md5 in deps.items()],
        "outs": [{"path": path, "md5": MD5 + (model if path == "data/model" else "1")} for path in outs],
    }
    last = {"outs": [{"path": "data/run.json", "md5": MD5 + model}]}
    (folder / "dvc.lock").write_text(json.dumps({"stages": {"report": entry, "record": last}}))  # JSON is YAML
    return Result(root=folder)


@pytest.fixture(autouse=True)
def reports_as_they_lie_here(monkeypatch):
    """The md5s of these projects are invented, so their reports are read as they are."""
    monkeypatch.setattr(Result, "text", lambda self, path: (self.root / path).read_text())


@pytest.mark.parametrize(("model", "equal"), [("1", True), ("2", False)])
def test_outs_are_the_same_if_their_md5s_are(tmp_path, capsys, model, equal):
    before = write_project(tmp_path / "before", {"own": "1", "code.py": "1"})
    after = write_project(tmp_path / "after", {"own": "2", "code.py": "1"}, {"bleu": 98.7}, model)
    assert verify.show(before, after) is equal
    shown = capsys.readouterr().out
    assert ("DIFFERENT" in shown) is not equal
    assert "data/run.json" not in shown  # of the stage record, which no result depends on
    assert shown.split("not the recorded input: ")[1] == "own\n"
    bleu = next(line.split() for line in shown.split("\n") if line.startswith("bleu"))
    assert bleu == ["bleu", "98.8", "98.7"]


@pytest.fixture
def committed(request, tmp_path, monkeypatch) -> Path:
    """A project of one commit as current folder. The parameter is its place in the repository."""
    top = tmp_path / "top"
    folder = top / getattr(request, "param", "")
    write_project(folder, {})
    (folder / ".gitignore").write_text("work/\ndata/\n")
    commit_all(top)
    monkeypatch.chdir(folder)
    return folder


def commit(folder: Path, file: str, text: str) -> None:
    """Commit a file of a project, with what else changed."""
    (folder / file).write_text(text)
    command(folder, "git", "add", "-A")
    command(folder, "git", "commit", "-qm", "next")


@pytest.mark.parametrize("committed", ["", "below/project"], indirect=True)
def test_a_shallow_clone_can_repeat_what_it_has(committed, tmp_path, monkeypatch):
    top = tmp_path / "top"
    commit(committed, ".dvc/config", "# second\n")
    command(tmp_path, "git", "clone", "-q", "--depth", "1", f"file://{top}", str(tmp_path / "shallow"))
    monkeypatch.chdir(tmp_path / "shallow" / committed.relative_to(top))
    with own_clone(result_of("HEAD"), keep=False) as project:
        assert (project / ".dvc/config").read_text() == "# second\n"
        assert not (project / "dvc.lock").exists()


def test_a_corpus_beside_the_project_is_beside_the_clone(committed):
    corpus = committed / "../../corpus"
    corpus.mkdir()
    (corpus / "train.de").write_text("eins\n")
    write_project(committed, {"../../corpus": "3"})
    commit(committed, "note", "")
    with own_clone(result_of("HEAD"), keep=False) as project:
        assert (project / "../../corpus/train.de").read_text() == "eins\n"
    assert not list((committed / "work").iterdir())
    shutil.rmtree(corpus)
    with pytest.raises(ValueError, match=r"\.\./corpus, an input of HEAD, is neither in git, in DVC's cache"):
        own_clone(result_of("HEAD"), keep=False).__enter__()


def test_an_experiment_is_cloned_though_no_branch_has_it(committed):
    commit(committed, ".dvc/config", "# second\n")
    digest = command(committed, "git", "rev-parse", "HEAD").strip()
    command(committed, "git", "reset", "-q", "--hard", "HEAD~1")
    with own_clone(Result("exp", digest), keep=False) as project:
        assert (project / ".dvc/config").read_text() == "# second\n"


VERIFY = """
from pipeline.__main__ import stop_by_signal
from pipeline.workflow.dvc_lock import result_of
from pipeline.results.verify import own_clone, repeat
stop_by_signal()
with own_clone(result_of("HEAD"), keep=False) as project:
    repeat(project)
"""
ENDLESS = """
import os, pathlib, time
pathlib.Path(os.environ["CHILD"]).write_text(str(os.getpid()))
print("Running stage 'train':", flush=True)
time.sleep(600)
"""


def test_a_signal_stops_the_stages_and_removes_the_clone(committed, tmp_path):
    commit(committed, "dvc.py", ENDLESS)  # runs in place of DVC
    child = tmp_path / "child"
    process = subprocess.Popen(
        [sys.executable, "-c", VERIFY],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "CHILD": str(child)},
    )
    assert process.stdout
    assert process.stdout.readline() == "Running stage 'train':\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 128 + signal.SIGTERM
    assert not list((committed / "work").glob("verify-*"))
    with pytest.raises(ProcessLookupError):
        os.kill(int(child.read_text()), 0)
