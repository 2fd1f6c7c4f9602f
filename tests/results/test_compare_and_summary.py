"""compare and summary show what dvc.lock says, and compare like with like: text, versions and machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest
from support.projects import command, pipeline_command
from support.results import commit_result, start_project

from pipeline.workflow.dvc_lock import Result

COMMAND = (sys.executable, "-m", "pipeline")
ROOT = Path(__file__).parents[2]
CODE = "SMOOTHING = 0.1\n"


def result(folder: Path, tag: str, bleu: float, text: str = "eins", **changes) -> None:
    """Commit a result under a tag, as if its stages had just run. changes: of knobs, or code, torch and cpu."""
    lines, scores = f"{text} zwei vier fünf.\n" * 12, {"bleu": bleu, "valid_bleu": bleu}
    files = {
        "versions.yaml": f'torch: "{changes.pop("torch", "2.13.0")}"\n',
        "transformer/loss.py": changes.pop("code", CODE),
        "own/train.de": lines,
        "data/raw/test.src": lines,
        "data/raw/test.tgt": "eins zwei vier fünf.\n" * 12,
        "data/hypotheses/test.hyp": lines if bleu > 50 else lines.replace("zwei", "drei"),
        "reports/environment.json": json.dumps({"cpu": changes.pop("cpu", "A"), "threads": 1}),
        "reports/scores.json": json.dumps(scores),
        "reports/report.html": tag,
    }
    commit_result(folder, tag, files=files, **{"warmup": 4, "seed": 1, **changes})


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A project with a result of each of several edits: of a knob, of the seed, a comment, the loss, ..."""
    folder = tmp_path_factory.mktemp("results") / "project"
    shutil.copytree(ROOT / "pipeline", folder / "pipeline", ignore=shutil.ignore_patterns("__pycache__"))
    start_project(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_COMMITTER_DATE", "2026-01-03T00:00:00Z")  # the same second
        result(folder, "first", 50.0)
        result(folder, "again", 49.0)
    result(folder, "seed", 52.0, seed=2)
    result(folder, "comment", 60.0, code=f"{CODE}# a remark\n", warmup=8)
    result(folder, "machine", 70.0, warmup=16, cpu="B")
    result(folder, "loss", 80.0, code="SMOOTHING = 0.2\n", warmup=32)
    result(folder, "torch", 90.0, torch="2.12.0", warmup=64)
    result(folder, "text", 95.0, text="null", warmup=128)
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


def test_a_file_of_translations_is_compared_like_a_result(project, capsys):
    lines = ["eins drei vier fünf."] * 12  # as first has
    (project / "other.txt").write_text("\ufeff" + "\r\n".join(lines), encoding="utf-8", newline="")
    for names in (("first", "other.txt", "comment"), ("other.txt", "first", "comment")):
        output = pipeline_command(project, capsys, "compare", *names)
        table = json.loads((project / "reports/comparison.json").read_text())
        rows = {row["name"]: row for row in table["systems"]}
        assert [row["name"] for row in table["systems"]] == list(names)
        assert [rows[name]["warmup"] for name in names if name != "other.txt"] == [4, 8]
        assert (rows[names[1]]["delta"], rows[names[1]]["p_randomisation"]) == (0, 1)
        assert [row["names"] for row in table["configurations"]] == ["first", "comment"]
        assert ("differs_also_in" in rows["comment"]) == (names[0] == "first")
        assert table["changed_most"]["comment"][0]["before"] == lines[0]
        assert re.search(r"^ *other\.txt +\d+\.\d+ ", output, re.MULTILINE)


def test_p_of_two_files_is_that_of_sacrebleu(project, capsys, monkeypatch):
    right, wrong = ["eins zwei vier fünf."], ["eins drei vier fünf."]
    texts = {"a.txt": wrong * 2 + right * 10, "b.txt": right * 7 + wrong * 5}
    for name, lines in texts.items():
        (project / name).write_text("\n".join(lines))
    pipeline_command(project, capsys, "compare", *texts, "first")
    ours = json.loads((project / "reports/comparison.json").read_text())["systems"][1]["p_randomisation"]
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    test = PairedTest(list(texts.items()), {"BLEU": BLEU()}, [right * 12], "ar", 10000)
    assert 0.05 < ours < 0.5
    theirs = vars(test()[1]["BLEU"][1])["p_value"]
    assert ours == pytest.approx(theirs, abs=0.03)  # one standard deviation is below 0.005


@pytest.mark.parametrize(
    ("text", "names", "message"),
    [
        (b"a\n" * 11, "HEAD made.txt", r"data/raw/test\.src has 12 lines and made\.txt 11, 1 fewer"),
        (b"a\n" * 12 + b"\n", "made.txt HEAD", r"made\.txt has 13 lines and data/raw/test\.src 12, 1 fewer"),
        (b"a\n\xe4\n", "HEAD made.txt", r"made\.txt:2:1: not UTF-8 .*iconv -f ENCODING"),
        (b"a\n" * 12, "made.txt ./made.txt", "Files have no test set. Nothing was compared"),
        (b"a\n" * 12, "made.txt made.txt", "made.txt is one result. Nothing was compared"),
        (b"a\n" * 12, "HEAD first", r"first is a file and a result\..* Type \./first, or the"),
    ],
)
def test_a_file_that_cannot_be_compared_is_refused(project, capsys, text, names, message):
    (path := project / ("first" if "first" in names else "made.txt")).write_bytes(text)
    (project / "reports/comparison.json").unlink(missing_ok=True)
    output = pipeline_command(project, capsys, "compare", *names.split(), error=True)
    path.unlink()
    assert re.match(f"error: {message}", output), output
    assert output.count("\n") == 1
    assert not (project / "reports/comparison.json").exists()


def test_summary_pairs_only_results_of_equal_text_and_machine(project, capsys):
    command(project, "git", "config", "log.showSignature", "true")
    output = pipeline_command(project, capsys, "summary", "--history")
    scores, _, effects = output.partition("effect of each knob")
    assert re.findall(r"^ *warmup +(\d+) +(\d+) +(\d+) ", effects, re.MULTILINE) == [("4", "8", "1"), ("4", "32", "1")]
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


def test_compare_says_that_dvc_runs(project, tmp_path, capsys):
    clone = tmp_path / "clone"
    shutil.copytree(project, clone, symlinks=True)
    busy = {"write": {str(clone / "reports/scores.json"): {"pid": os.getppid(), "cmd": "dvc repro"}}}
    (clone / ".dvc/tmp/rwlock").write_text(json.dumps(busy))
    output = pipeline_command(clone, capsys, "compare", "workspace", "first", error=True)
    assert "error: workspace is changing: DVC runs here. Try again when it has ended." in output


def test_without_git_a_command_says_so_in_one_line(project, tmp_path, capsys):
    output = command(project, *COMMAND, "compare", "first", "HEAD", status=1, PATH=str(tmp_path), PYTHONPATH=str(ROOT))
    assert output.startswith("error: git is not installed, or not in PATH. Install it: experiments are kept in git.")
    assert output.count("\n") == 1
    (tmp_path / ".dvc").mkdir()
    for name in ("summary", "clean"):
        output = pipeline_command(tmp_path, capsys, name, error=True)
        assert f"error: {tmp_path} is not in a git repository, where experiments are kept. Nothing was done." in output
        assert "Type `git init && git add -A && git commit -m start`" in output


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("attention", "error: attention is a stage: python -m pipeline.attention\n"),
        ("serv", "error: 'serv' is not one of these commands. Did you mean serve?\n"),
        ("zzz", "error: 'zzz' is not one of these commands\n"),
    ],
)
def test_a_name_that_is_no_command_is_explained(tmp_path, capsys, name, message):
    assert pipeline_command(tmp_path, capsys, name, error=True).startswith(message)


def test_summary_does_not_name_the_work_tree_as_left_out(project, capsys):
    assert "left out: workspace" not in pipeline_command(project, capsys, "summary")
