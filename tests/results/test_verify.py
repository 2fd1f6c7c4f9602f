"""How `python -m pipeline verify` judges a repetition: identical, within tolerance or different."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.projects import command
from support.tiny import ROOT

from pipeline.results import clean, verify
from pipeline.results.tolerances import RULES, SPREAD, Agreement
from pipeline.results.verify import changed_inputs, differences, own_clone, recorded_settings
from pipeline.workflow.dvc_lock import Result
from pipeline.workflow.stage import path_of, read_values

CURVE = "step,train_loss,valid_loss,learning_rate\n10,{},,0.1\n20,{},3.0,0.2\n"
SCORES = {"valid_bleu": 97.2, "bleu": 98.8, "chrf": 99.0, "ter": 1.0, "sentences": 500}
SCORES |= {"exact_match": 90.0, "exact_match_case": 90.0}
TRAINING = {"steps": 20, "target_tokens": 1000, "train_loss": 2.0, "best_step": 20, "best_valid_loss": 1.0}
ENGINES = {"int8_bleu_beam_4": 97.0, "int8_identical_beam_4": 98.0, "engines_agree": True}
OUTS = {
    "download": ["data/raw"],
    "encode": ["data/ids"],
    "back_translate": ["data/back"],
    "train": ["data/checkpoints", "reports/environment.json", "reports/training.json", "reports/training.csv"],
    "average": ["data/model"],
    "export": ["data/ct2"],
    "translate": ["data/hypotheses"],
    "score": ["reports/scores.json", "reports/signatures.json"],
    "report": ["reports/report.html"],
    "attention": ["data/attention.json", "reports/attention.png", "reports/attention.svg"],
    "compare_engines": ["reports/engines.json"],
    "record": ["data/run.json"],
}
LABELS = ["case"] * 20 + [""] * 480


def tree(folder: Path, changed: list[str], stages: dict[str, list[str]] = OUTS, **reports: Any) -> Result:
    """Result in a folder. changed: outs that have another hash than in a tree without them."""
    for name in ("reports", "data/raw", "data/back", "data/hypotheses"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    defaults = {"scores": SCORES, "training": TRAINING, "engines": ENGINES, "environment": {"torch": "2.13.0+cpu"}}
    for name, value in (defaults | reports).items():
        if name in defaults:
            (folder / f"reports/{name}.json").write_text(json.dumps(value))
    shutil.copy(ROOT / "recipes/toy.yaml", folder / "params.yaml")
    (folder / "reports/training.csv").write_text(reports.get("curve", CURVE.format(5, 4)))
    (folder / "data/raw/test.labels").write_text("\n".join(LABELS) + "\n")
    for path in ("data/hypotheses/valid.hyp", "data/hypotheses/test.hyp", "data/back/train.src"):
        (folder / path).write_text("eins\nzwei\n" + ("drei\n" if path.rpartition("/")[0] in changed else "vier\n"))
    lock = {
        stage: {"outs": [{"path": path, "md5": 31 * "0" + str(int(path in changed))} for path in paths]}
        for stage, paths in stages.items()
    }
    write_lock(folder, lock)
    (folder / "dvc.yaml").write_text(json.dumps({"stages": {stage: {"cmd": stage} for stage in OUTS}}))
    return Result(root=folder)


def write_lock(folder: Path, stages: dict) -> None:
    (folder / "dvc.lock").write_text(json.dumps({"stages": stages}))  # JSON is YAML


def rows(tmp_path: Path, changed: list[str], **reports: Any) -> dict[str, dict]:
    """The rows of `verify` for outs that differ from a recorded tree in `changed` and in these reports."""
    table = Agreement(tree(tmp_path / "recorded", []), tree(tmp_path / "new", changed, **reports)).table()
    return {str(row["out"]): row for row in table.to_dict("records")}


def test_the_outs_that_have_a_tolerance_are_outs_of_the_pipeline():
    stages = read_values(ROOT / "dvc.yaml")["stages"].values()
    outs = {path_of(out) for stage in stages for kind in ("outs", "metrics", "plots") for out in stage.get(kind, [])}
    text = {f"data/{name}" for name in ("raw", "filtered", "tokens", "bpe.codes", "vocab.txt", "ids", "subwords.json")}
    exact = text | {"reports/data.html", "reports/signatures.json", "reports/environment.json"}
    assert outs - exact == RULES.keys()


@pytest.mark.parametrize(
    ("out", "report", "verdict"),
    [
        ("reports/scores.json", {"scores": SCORES | {"bleu": 98.4}}, "within tolerance"),
        ("reports/scores.json", {"scores": SCORES | {"bleu": 98.2}}, "different"),  # 0.6 of BLEU, within 2%
        ("reports/scores.json", {"scores": SCORES | {"valid_bleu": 97.81}}, "different"),
        ("reports/scores.json", {"scores": SCORES | {"bleu": float("nan")}}, "different"),
        ("reports/scores.json", {"scores": SCORES | {"sentences": 499}}, "different"),
        ("reports/scores.json", {"scores": dict.fromkeys(("bleu", "sentences"), 1.0)}, "different"),
        ("reports/scores.json", {"scores": SCORES | {"exact_match": 88.0}}, "within tolerance"),  # 10 of 500 sentences
        ("reports/scores.json", {"scores": SCORES | {"exact_match": 87.8}}, "different"),
        ("reports/scores.json", {"scores": SCORES | {"exact_match_case": 80.0}}, "within tolerance"),  # 2 of 20
        ("reports/scores.json", {"scores": SCORES | {"exact_match_case": 75.0}}, "different"),
        ("reports/training.json", {"training": TRAINING | {"train_loss": 2.04, "best_step": 10}}, "within tolerance"),
        ("reports/training.json", {"training": TRAINING | {"train_loss": 2.05}}, "different"),
        ("reports/training.json", {"training": TRAINING | {"steps": 19}}, "different"),
        ("reports/training.json", {"training": TRAINING | {"target_tokens": 1001}}, "different"),
        ("reports/training.csv", {"curve": CURVE.format(5.05, 4)}, "within tolerance"),
        ("reports/training.csv", {"curve": CURVE.format(6, 4)}, "different"),
        ("reports/training.csv", {"curve": CURVE.format("nan", 4)}, "different"),
        ("reports/training.csv", {"curve": CURVE.format(5, 4).replace("0.2", "0.20001")}, "different"),
        ("reports/engines.json", {"engines": ENGINES | {"int8_identical_beam_4": 96.2}}, "within tolerance"),
        ("reports/engines.json", {"engines": ENGINES | {"int8_bleu_beam_4": 96.2}}, "different"),
        ("data/ids", {}, "different"),  # no floating point: not one byte
        ("reports/signatures.json", {}, "different"),
    ],
)
def test_counts_and_text_are_compared_exactly_and_scores_by_tolerance(tmp_path, out, report, verdict):
    table = rows(tmp_path, [out], **report)
    assert table[out]["verdict"] == verdict
    assert {row["verdict"] for path, row in table.items() if path != out} == {"identical"}


@pytest.mark.parametrize(
    ("reports", "different"),
    [
        ({}, set()),
        ({"training": TRAINING | {"train_loss": 2.1}}, {"data/checkpoints", "data/model", "data/ct2", "data/back"}),
        ({"scores": SCORES | {"valid_bleu": 96.0}}, {"data/hypotheses", "data/back"}),
        ({"scores": SCORES | {"bleu": 98.0}}, {"data/hypotheses", "data/back"}),
    ],
)
def test_weights_are_judged_by_losses_translations_by_scores(tmp_path, reports, different):
    outs = ["data/back", "data/checkpoints", "data/model", "data/ct2", "data/hypotheses"]
    table = rows(tmp_path, outs, **reports)
    assert {path for path in outs if table[path]["verdict"] == "different"} == different
    assert {table[path]["verdict"] for path in outs} <= {"different", "within tolerance"}


def test_tokens_may_differ_in_number_only_with_other_back_text(tmp_path):
    more = {"training": TRAINING | {"target_tokens": 1010}}
    changed = ["data/back", "reports/training.json"]
    assert rows(tmp_path, changed, **more)["reports/training.json"]["verdict"] == "within tolerance"
    assert rows(tmp_path, changed[1:], **more)["reports/training.json"]["verdict"] == "different"


@pytest.mark.parametrize(
    ("reports", "verdict"),
    [
        ({"training": TRAINING | {"train_loss": 2.09}}, "within tolerance"),
        ({"training": TRAINING | {"train_loss": 2.11}}, "different"),
        ({"scores": SCORES | {"bleu": 97.6}}, "within tolerance"),  # 1.2 of BLEU
        ({"scores": SCORES | {"bleu": 97.5}}, "different"),
    ],
)
def test_another_processor_widens_the_tolerances(tmp_path, reports, verdict):
    (name,) = reports
    path = f"reports/{name}.json"
    pair = tree(tmp_path / "recorded", []), tree(tmp_path / "new", [path], **reports)
    table = {row["out"]: row["verdict"] for row in Agreement(*pair, like=False).table().to_dict("records")}
    assert table[path] == verdict


@pytest.mark.parametrize(("fact", "like"), [("threads", False), ("instructions", False), ("python", True)])
def test_the_verdict_names_the_spread_if_the_processor_differs(tmp_path, capsys, fact, like):
    facts = {"threads": 2, "instructions": "AVX2", "python": "3.11"}
    recorded = tree(tmp_path / "recorded", [], environment=facts)
    new = tree(
        tmp_path / "new",
        ["reports/training.json"],
        environment=facts | {fact: "other"},
        training=TRAINING | {"train_loss": 2.09},
    )
    assert verify.show(recorded, new) == ("different" if like else "within tolerance")
    assert (f"difference were this far apart: {SPREAD}" in capsys.readouterr().out) != like


def test_a_repetition_uses_the_recorded_threads_and_processes(tmp_path, monkeypatch):
    monkeypatch.setattr(verify, "cores", lambda: 4)
    recorded = tree(tmp_path / "recorded", [])
    facts = tmp_path / "recorded/reports/environment.json"
    for device, threads, devices, more, variables in (
        ("CPU", 1, 2, {}, {"OMP_NUM_THREADS": "1", "DEVICES": "2", "SHARDING": "none"}),
        ("CPU", 1, 2, {"sharding": "full"}, {"OMP_NUM_THREADS": "1", "DEVICES": "2", "SHARDING": "full"}),
        ("CPU", 8, 1, {}, {}),  # more than there are
        ("NVIDIA H200", 1, 1, {}, {}),
    ):
        facts.write_text(json.dumps({"device": device, "threads": threads, "devices": devices, **more}))
        assert recorded_settings(recorded) == variables


def test_each_fact_of_the_environment_that_differs_is_listed(tmp_path):
    recorded = tree(tmp_path / "recorded", [], environment={"torch": "2.13.0+cpu", "cpu": "A"})
    assert differences(recorded, {"torch": "2.13.0", "cpu": "A"}).empty  # a local build is the same version
    assert differences(recorded, {"torch": "2.13.0", "cpu": "B", "devices": 2}).to_dict("records") == [
        {"fact": "cpu", "recorded": "A", "here": "B"},
        {"fact": "devices", "recorded": "not recorded", "here": "2"},
    ]


def test_an_input_outside_git_that_was_edited_is_named(tmp_path):
    recorded, new = tree(tmp_path / "recorded", []), tree(tmp_path / "new", ["data/raw"])
    for results, own in ((recorded, "a"), (new, "b")):
        lock = json.loads(results.text("dvc.lock"))["stages"]
        lock["download"]["deps"] = [{"path": "own", "md5": own}, {"path": "code.py", "md5": "c"}]
        lock["encode"]["deps"] = [{"path": "data/raw/test.src", "md5": own}]
        lock["record"]["deps"] = [{"path": "notes", "md5": own}]  # no result depends on this stage
        write_lock(results.file("dvc.lock").parent, lock)
    assert changed_inputs(recorded, new) == ["own"]


@pytest.fixture
def committed(request, tmp_path, monkeypatch) -> Path:
    """A project of two commits whose results need nothing from outside, as current folder.

    The parameter is its place in the repository.
    """
    top = tmp_path / "top"
    folder = top / getattr(request, "param", "")
    (folder / ".dvc").mkdir(parents=True)
    tree(folder, [])
    (folder / ".gitignore").write_text("work/\ndata/\n")
    monkeypatch.chdir(folder)
    command(top, "git", "init", "-q")
    for name in ("first", "second"):
        commit(folder, ".dvc/config", f"# {name}\n")
    return folder


def commit(folder: Path, file: str, text: str) -> None:
    """Commit a file of a project, with what else changed."""
    (folder / file).write_text(text)
    command(folder, "git", "add", "-A")
    command(folder, "git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "next")


@pytest.mark.parametrize("committed", ["", "below/project"], indirect=True)
def test_a_shallow_clone_can_be_verified_for_what_it_has(committed, tmp_path, monkeypatch):
    top = tmp_path / "top"
    command(tmp_path, "git", "clone", "-q", "--depth", "1", f"file://{top}", str(tmp_path / "shallow"))
    monkeypatch.chdir(tmp_path / "shallow" / committed.relative_to(top))
    with own_clone(Result("HEAD"), keep=False) as project:
        assert (project / ".dvc/config").read_text() == "# second\n"
        assert not (project / "dvc.lock").exists()
    with pytest.raises(ValueError, match=r"HEAD~1 is not .* shallow clone: `git fetch --unshallow` fetches"):
        Result("HEAD~1")


def test_two_at_once_have_clones_of_their_own_that_clean_keeps(committed):
    work = committed / "work"
    with own_clone(Result("HEAD"), keep=False) as first, own_clone(Result("HEAD"), keep=True) as second:
        assert first != second
        places = [work / project.relative_to(work).parts[0] for project in (first, second)]
        assert all(clean.is_used(place) and not clean.remove(place) for place in places)
        assert (first / "work/cores").resolve() == (second / "work/cores").resolve() == work / "cores"
        assert (first / "reports/scores.json").exists()
    assert [place.exists() for place in places] == [False, True]
    assert not clean.is_used(places[1])
    assert clean.remove(places[1])


def test_a_corpus_beside_the_project_is_copied_beside_the_clone(committed):
    corpus = committed / "../../corpus"
    corpus.mkdir()
    (corpus / "train.de").write_text("eins\n")
    lock = json.dumps({"stages": {"download": {"deps": [{"path": "../../corpus", "md5": "0"}]}}})
    commit(committed, "dvc.lock", lock)
    with own_clone(Result("HEAD"), keep=False) as project:
        assert (project / "../../corpus/train.de").read_text() == "eins\n"
        assert (project / "../../corpus").resolve().is_relative_to(committed / "work")
    assert {path.name for path in (committed / "work").iterdir() if path.is_dir()} == {"cores", "gpus"}
    shutil.rmtree(corpus)
    with pytest.raises(ValueError, match=r"\.\./corpus, a dependency of HEAD, is neither in git, in DVC's cache"):
        own_clone(Result("HEAD"), keep=False).__enter__()


def test_an_experiment_is_cloned_though_no_branch_has_it(committed):
    digest = command(committed, "git", "rev-parse", "HEAD").strip()
    command(committed, "git", "reset", "-q", "--hard", "HEAD~1")
    with own_clone(Result("exp", digest), keep=False) as project:
        assert (project / ".dvc/config").read_text() == "# second\n"


VERIFY = """
from pipeline.__main__ import stop_by_signal
from pipeline.workflow.dvc_lock import Result
from pipeline.results.verify import own_clone, repeat
stop_by_signal()
with own_clone(Result("HEAD"), keep=False) as project:
    repeat(project, {})
"""
ENDLESS = """
import os, pathlib, time
pathlib.Path(os.environ["CHILD"]).write_text(str(os.getpid()))
print("Running stage 'train':", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.full)])
def test_a_signal_stops_the_stages_and_removes_the_clone(committed, tmp_path, number):
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
    process.send_signal(number)
    assert process.wait() == 128 + number
    assert not list((committed / "work").glob("verify-*"))
    with pytest.raises(ProcessLookupError):
        os.kill(int(child.read_text()), 0)
