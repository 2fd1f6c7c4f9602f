"""A result is what its dvc.lock says, and a lock is accepted if the stages that made the result agree."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from support.forks import forget
from support.projects import command, commit_all

from pipeline.workflow import git
from pipeline.workflow.dvc_lock import (
    COMMIT_IT,
    NoResult,
    Result,
    is_only_absent,
    result_of,
    stages_above,
    stored_results,
)

MODEL, TEXT, SCORES = "data/model", "data/hypotheses", "reports/scores.json"


def md5(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()


def lock() -> dict:
    """A dvc.lock of four stages that agree, as JSON, which is YAML."""
    outs = {path: {"path": path, "md5": md5(path)} for path in (MODEL, TEXT, SCORES, "reports/report.html", "data/run")}
    return {
        "train": {"params": {"params.yaml": {"warmup": 4, "seed": 1}}, "outs": [outs[MODEL]]},
        "translate": {"deps": [outs[MODEL]], "params": {"params.yaml": {"seed": 1}}, "outs": [outs[TEXT]]},
        "report": {"deps": [outs[TEXT]], "outs": [outs[SCORES], outs["reports/report.html"]]},
        "record": {"deps": [{"path": MODEL, "md5": md5("of the run before")}], "outs": [outs["data/run"]]},
    }


def result(folder: Path, stages: dict) -> Result:
    (folder / "dvc.lock").write_text(json.dumps({"stages": stages}))
    return Result(root=folder)


def test_stages_that_agree_are_accepted_though_outs_are_absent(tmp_path):
    """As after a partial pull. `record`, whose entry is of the run before while it runs, is not asked."""
    assert result(tmp_path, lock()).entries().keys() == {"train", "translate", "report"}


def test_a_dep_with_another_md5_than_its_out_is_refused(tmp_path):
    stages = lock()
    stages["translate"]["deps"][0] = {"path": MODEL, "md5": md5("other")}
    with pytest.raises(NoResult, match="several runs: stage translate read another data/model than other"):
        result(tmp_path, stages).entries()
    assert result(tmp_path, stages).entries(MODEL).keys() == {"train"}  # of which translate is not above


def test_a_dep_of_two_stages_with_two_md5s_is_refused(tmp_path):
    """As of code that was edited between two stages, or after a merge; no stage writes it."""
    stages = lock()
    stages["train"]["deps"] = [{"path": "transformer/model", "md5": md5("old")}]
    stages["translate"]["deps"].append({"path": "transformer/model", "md5": md5("new")})
    with pytest.raises(NoResult, match="several runs: stage translate read another transformer/model than other"):
        result(tmp_path, stages).entries()


def test_a_param_with_two_values_is_refused(tmp_path):
    stages = lock()
    stages["translate"]["params"]["params.yaml"]["seed"] = 2
    with pytest.raises(NoResult, match="several runs: seed was 1 in stage train and 2 in stage translate"):
        result(tmp_path, stages).entries()


def test_a_result_with_a_knob_that_this_version_lacks_is_no_result(tmp_path):
    stages = lock()
    stages["report"]["params"] = {"params.yaml": {"old_knob": 3}}
    with pytest.raises(NoResult, match=r"is a result of another version of this project: .*unknown knob 'old_knob'"):
        _ = result(tmp_path, stages).params


def test_outs_that_are_absent_are_no_edits():
    absent = {"changed outs": {"data/ids": "deleted"}}
    assert is_only_absent([absent])
    assert not any(map(is_only_absent, ([absent, {"changed deps": {"own": "modified"}}], ["changed command"])))


def test_an_out_that_is_not_in_the_lock_is_named(tmp_path):
    stages = lock()
    del stages["translate"]
    with pytest.raises(NoResult, match=r"dvc\.lock of workspace has no data/hypotheses\. Run `dvc repro`\."):
        result(tmp_path, stages).entries()


def test_the_stages_above_an_out_are_those_that_made_it():
    assert stages_above(lock(), [TEXT]).keys() == {"train", "translate"}
    assert stages_above(lock(), ["reports/other"]) == {}


STAGES = """\
stages:
  copy:
    cmd: cp corpus/a out && mkdir -p data && cp corpus/a data/out
    deps: [corpus]
    params: [knob]
    outs: [out, data]
  score: {cmd: cp out scores.json, deps: [out], metrics: [scores.json: {cache: false}]}
"""


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    """A project in a subfolder of a repository, run and committed with 1, then with 2."""
    top = tmp_path_factory.mktemp("template") / "top"
    folder = top / "below/project"
    (folder / "corpus").mkdir(parents=True)
    (folder / "corpus/a").write_text("1\n")
    (folder / "params.yaml").write_text("knob: 1\nother: 1\n")
    (folder / "dvc.yaml").write_text(STAGES)
    command(top, "git", "init", "-q")
    command(folder, "dvc", "init", "-q", "--subdir")
    commit_all(top)
    for text in "12":
        (folder / "corpus/a").write_text(f"{text}\n")
        command(folder, "dvc", "repro", "-q")
        command(folder, "git", "add", "-A")
        command(folder, "git", "commit", "-qm", text)
    return top


@pytest.fixture
def root(template, tmp_path, monkeypatch) -> Path:
    """A copy of the project as the current folder."""
    shutil.copytree(template, tmp_path / "top", symlinks=True)
    monkeypatch.chdir(tmp_path / "top/below/project")
    forget()
    return Path.cwd()


def test_commits_and_experiments_are_read_in_a_subfolder_too(root):
    command(root, "dvc", "exp", "run", "-q", "-S", "knob=2", "--name", "two")
    results = [result_of(name) for name in ("HEAD~1", "HEAD", "two")]
    assert [each.lines("out") for each in results] == [["1"], ["2"], ["2"]]
    assert [each.lines("data/out") for each in results] == [["1"], ["2"], ["2"]]
    assert [each.text("scores.json") for each in results] == ["1\n", "2\n", "2\n"]
    assert [each.commit for each, _ in stored_results(history=False)] == [results[1].commit, results[2].commit]
    assert {each.commit for each, _ in stored_results()} == {each.commit for each in results}


def test_the_results_of_a_merged_branch_are_in_the_history(root):
    command(root, "git", "checkout", "-q", "-b", "side", "HEAD~1")
    (root / "dvc.lock").write_text(f"{(root / 'dvc.lock').read_text()}# side\n")
    command(root, "git", "commit", "-qam", "side")
    side = command(root, "git", "rev-parse", "HEAD").strip()
    command(root, "git", "checkout", "-q", "-")
    command(root, "git", "merge", "-q", "-s", "ours", "side")
    command(root, "git", "branch", "-D", "side")
    assert side in [each.commit for each, _ in stored_results()]


def test_a_file_beside_the_lock_is_not_read_unless_it_is_the_locks(root):
    (root / "scores.json").write_text("99\n")
    (root / "out").unlink()
    (root / "out").write_text("99\n")
    assert (Result().text("scores.json"), Result().lines("out")) == ("2\n", ["2"])
    shutil.rmtree(root / ".dvc/cache")
    for path in ("scores.json", "out"):
        with pytest.raises(NoResult, match=rf"{path} of workspace is not in DVC's cache\. `dvc pull`"):
            Result().text(path)
    assert result_of("HEAD").text("scores.json") == "2\n"  # git has it


def test_a_commit_without_a_lock_names_the_line_that_commits_one(root):
    with pytest.raises(NoResult) as error:
        result_of("HEAD~2").entries()
    assert (
        str(error.value)
        == f"HEAD~2 has no dvc.lock, so no result. Run `dvc repro` and commit what it writes: {COMMIT_IT}."
    )


def test_an_experiment_named_like_a_branch_is_refused(root):
    command(root, "dvc", "exp", "run", "-q", "-S", "knob=2", "--name", "two")
    command(root, "git", "branch", "two")
    with pytest.raises(ValueError, match="two is the name of an experiment and of a branch, tag or commit"):
        result_of("two")


def test_git_in_a_hook_leaves_the_users_head_alone(root, tmp_path, monkeypatch):
    other = tmp_path / "other"
    shutil.copytree(tmp_path / "top", other, symlinks=True)
    (other / "below/project/corpus/a").write_text("3\n")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "top/.git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "top/.git/index"))
    head = git.resolve("HEAD")
    git.command("git", "commit", "-qam", "elsewhere", folder=other)
    assert git.resolve("HEAD") == head != git.command("git", "rev-parse", "HEAD", folder=other).strip()
