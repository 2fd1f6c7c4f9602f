"""compare and summary show what dvc.lock says, and compare like with like: text, versions and machine."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from support.projects import command, commit_all, own_corpus, params_file, pipeline_command

from pipeline.workflow.dvc_lock import Result

COMMAND = (sys.executable, "-m", "pipeline")
ROOT = Path(__file__).parents[2]
STAGES = """\
stages:
  download: {cmd: 'true', deps: [own], outs: [data/raw]}
  train:
    cmd: 'true'
    deps: [data/raw, transformer]
    params: [warmup, seed, versions.yaml: [torch]]
    outs: [data/model]
    metrics: [reports/environment.json: {cache: false}]
  translate: {cmd: 'true', deps: [data/model, data/raw], params: [beam_size], outs: [data/hypotheses]}
  score:
    cmd: 'true'
    deps: [data/raw, data/hypotheses]
    outs: [reports/signatures.json]
    metrics: [reports/scores.json: {cache: false}]
  report: {cmd: 'true', deps: [reports/scores.json], params: [params.yaml: ], outs: [reports/report.html]}
"""
CODE = "SMOOTHING = 0.1\n"
DEFAULTS = {"text": "eins zwei.", "code": CODE, "torch": "2.13.0", "cpu": "A", "bleu": 50.0, "warmup": 4, "seed": 1}


def result(folder: Path, tag: str, **changes) -> None:
    """Commit a result under a tag, as if its stages had just run. changes: to DEFAULTS."""
    values = DEFAULTS | changes
    params_file(folder, warmup=values["warmup"], seed=values["seed"])
    lines = f"{values['text']}\n" * 12
    translation = lines if values["bleu"] > 50 else lines.replace("zwei", "drei")
    files = {
        "versions.yaml": f'torch: "{values["torch"]}"\n',
        "transformer/loss.py": values["code"],
        "own/train.de": lines,
        "data/raw/test.src": lines,
        "data/raw/test.tgt": "eins zwei.\n" * 12,
        "data/model/weights": tag,
        "data/hypotheses/test.hyp": translation,
        "reports/environment.json": json.dumps({"cpu": values["cpu"], "threads": 1}),
        "reports/scores.json": json.dumps({"bleu": values["bleu"], "valid_bleu": values["bleu"]}),
        "reports/signatures.json": json.dumps({"bleu": "tok:13a"}),
        "reports/report.html": tag,
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).unlink(missing_ok=True)  # which may be a link into DVC's cache
        (folder / name).write_text(text)
    command(folder, "dvc", "commit", "--force", "--quiet")
    command(folder, "git", "add", "-A")
    command(folder, "git", "commit", "-qm", tag)
    command(folder, "git", "tag", tag)


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A project with a result of each of several edits: of a knob, of the seed, a comment, the loss, ..."""
    folder = tmp_path_factory.mktemp("results") / "project"
    folder.mkdir()
    own_corpus(folder / "own")
    shutil.copytree(ROOT / "pipeline", folder / "pipeline", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "dvc.yaml").write_text(STAGES)
    (folder / ".gitignore").write_text("/data\n/reports/signatures.json\n/reports/*.html\n/reports/comparison.json\n")
    commit_all(folder)
    command(folder, "dvc", "init", "--quiet")
    result(folder, "first")
    result(folder, "again", bleu=49.0)
    result(folder, "seed", seed=2, bleu=52.0)
    result(folder, "comment", code=f"{CODE}# a remark\n", warmup=8, bleu=60.0)
    result(folder, "machine", warmup=16, cpu="B", bleu=70.0)
    result(folder, "loss", code="SMOOTHING = 0.2\n", warmup=32, bleu=80.0)
    result(folder, "torch", torch="2.12.0", warmup=64, bleu=90.0)
    result(folder, "text", text="null zwei.", warmup=128, bleu=95.0)
    return folder


def test_compare_names_what_differs_beside_the_knob(project, capsys):
    names = ("first", "comment", "machine", "loss", "torch", "text", "seed")
    output = pipeline_command(project, capsys, "compare", *names)
    record = json.loads((project / "reports/comparison.json").read_text())
    rows = {row["name"]: row for row in record["systems"]}
    assert {name: row.get("differs_also_in") for name, row in rows.items()} == {
        "first": None,
        "comment": "code: transformer",
        "machine": "machine: cpu A -> B",
        "loss": "code: transformer",
        "torch": "versions: torch 2.13.0 -> 2.12.0",
        "text": "data: data/raw",
        "seed": None,
    }
    assert "\nloss and first differ also in code: transformer\n" in output
    assert all({"p_randomisation", "p_randomisation_holm"} <= row.keys() for row in record["systems"][1:])
    assert rows["comment"]["warmup"] == 8
    assert max(row["runs"] for row in record["configurations"]) == 2
    assert "means over seeds" in output


def test_summary_pairs_only_results_of_equal_text_and_machine(project, capsys):
    command(project, "git", "config", "log.showSignature", "true")
    output = pipeline_command(project, capsys, "summary", "--history")
    scores, _, effects = output.partition("effect of each knob")
    assert re.findall(r"^ *warmup +(\d+) +(\d+) +(\d+) ", effects, re.MULTILINE) == [
        ("4", "8", "1"),
        ("4", "32", "1"),
    ]
    assert re.search(r"1, 2 +2 +51\.0", scores.partition("means over seeds")[2])
    assert {"data", "code", "versions"} <= set(output.split("\n")[0].split())
    assert "machine: cpu" in output
    assert re.search(r"left out: \w+: BLEU 49\.00, in all else equal to \w+\n", output)


def test_summary_shows_the_past_of_the_repository_only_if_asked(project, capsys):
    output = pipeline_command(project, capsys, "summary")
    head = Result("x", command(project, "git", "rev-parse", "HEAD").strip()).commit[:10]
    assert re.search(f"^{head} ", output, re.MULTILINE)
    assert "52.0" not in output
    assert (project / "reports/experiments.html").read_text().count(head) >= 1


@pytest.mark.parametrize(
    ("file", "old", "new", "remarks"),
    [
        ("params.yaml", "beam_size: 4", "beam_size: 5", {"HEAD": "beam_size", "workspace": "translate"}),
        ("transformer/loss.py", "0.1", "0.3", {"workspace": "train"}),
        ("reports/scores.json", "9", "8", {"workspace": "score"}),
    ],
)
def test_edits_after_the_run_give_one_remark_and_the_same_scores(project, tmp_path, capsys, file, old, new, remarks):
    clone = tmp_path / "clone"
    shutil.copytree(project, clone, symlinks=True)
    text = (clone / file).read_text()
    assert old in text
    (clone / file).write_text(text.replace(old, new, 1))
    command(clone, "git", "commit", "-qam", "edited")
    for name in ("HEAD", "workspace"):
        output = pipeline_command(clone, capsys, "compare", "first", name)
        remark = re.findall(rf"remark: {name} is shown as its dvc.lock says; .*", output)
        assert [remarks[name] in line for line in remark] == ([True] if name in remarks else [])
        assert json.loads((clone / "reports/comparison.json").read_text())["configurations"][1]["bleu_mean"] == 95.0


def test_without_git_a_command_says_so_in_one_line(project, tmp_path, capsys):
    output = command(project, *COMMAND, "compare", "first", "HEAD", status=1, PATH=str(tmp_path), PYTHONPATH=str(ROOT))
    assert output.startswith(
        "error: git is not installed, or not in PATH. Install it: experiments are kept in git. Trace"
    )
    assert output.count("\n") == 1
    (tmp_path / ".dvc").mkdir()
    for name in ("summary", "clean"):
        output = pipeline_command(tmp_path, capsys, name, error=True)
        assert f"error: {tmp_path} is not in a git repository, where experiments are kept. Nothing was done." in output
        assert "Type `git init && git add -A && git commit -m start`" in output


@pytest.mark.parametrize("words", [("pipeline", "summary"), ("transformer", "data/model")])
def test_python_without_the_packages_names_the_command_to_type(tmp_path, words):
    output = command(tmp_path, sys.executable, "-S", "-m", *words, status=1, PYTHONPATH=str(ROOT))
    assert re.fullmatch(r"error: \S+ has no package \w+\. Nothing was run\. Type `\. \.venv/bin/activate`.*\n", output)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("attention", "error: attention is a stage: python -m pipeline.attention\n"),
        ("demp", "error: 'demp' is not one of these commands. Did you mean demo?\n"),
        ("zzz", "error: 'zzz' is not one of these commands\n"),
    ],
)
def test_a_name_that_is_no_command_is_explained(tmp_path, capsys, name, message):
    assert pipeline_command(tmp_path, capsys, name, error=True).startswith(message)
