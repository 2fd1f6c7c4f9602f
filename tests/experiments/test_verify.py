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
from filelock import FileLock
from ruamel.yaml import YAML
from support.tiny import ROOT

from pipeline.experiments import clean, verify
from pipeline.experiments.tolerances import RULES, SPREAD, Agreement, curves
from pipeline.experiments.verify import as_recorded, changed_inputs, differences, own_clone
from pipeline.git import command
from pipeline.tracking.results import Experiment, WorkTree

CURVE = "step,train_loss,valid_loss,learning_rate\n10,{},,0.1\n20,{},3.0,0.2\n"
SCORES = {
    "valid_bleu": 97.2,
    "bleu": 98.8,
    "chrf": 99.0,
    "ter": 1.0,
    "exact_match": 90.0,
    "sentences": 500,
    "exact_match_case": 90.0,
}
TRAINING = {"steps": 20, "target_tokens": 1000, "train_loss": 2.0, "best_step": 20, "best_valid_loss": 1.0}
ENGINES = {"int8_bleu_beam_4": 97.0, "int8_identical_beam_4": 98.0, "engines_agree": True}
OUTS = {
    "download": ["data/raw"],
    "encode": ["data/ids"],
    "back_translate": ["data/back"],
    "train": ["data/checkpoints", "reports/environment.json", "reports/training.json", "reports/training.csv"],
    "average": ["data/model"],
    "export": ["data/ct2"],
    "translate": ["data/hypotheses", "data/valid.hyp", "data/test.hyp"],  # the last two: version 0.1
    "score": ["reports/scores.json", "reports/signatures.json"],
    "report": ["reports/report.html"],
    "attention": ["data/attention.json", "reports/attention.png", "reports/attention.svg"],
    "compare_engines": ["reports/engines.json"],
    "record": ["data/run.json"],
}
LABELS = ["case"] * 20 + [""] * 480


def tree(folder: Path, other: list[str], **reports: Any) -> WorkTree:
    """Results in a folder. other: outs that have another hash than in a tree without them."""
    for name in ("reports", "data/raw", "data/back", "data/hypotheses"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    held = {"scores": SCORES, "training": TRAINING, "engines": ENGINES, "environment": {"torch": "2.13.0+cpu"}}
    for name, value in (held | reports).items():
        if name in held:
            (folder / f"reports/{name}.json").write_text(json.dumps(value))
    shutil.copy(ROOT / "recipes/toy.yaml", folder / "params.yaml")
    (folder / "reports/training.csv").write_text(reports.get("curve", CURVE.format(5, 4)))
    (folder / "data/raw/test.labels").write_text("\n".join(LABELS) + "\n")
    for path in (
        "data/valid.hyp",
        "data/test.hyp",
        "data/hypotheses/valid.hyp",
        "data/hypotheses/test.hyp",
        "data/back/train.src",
    ):
        (folder / path).write_text(
            "eins\nzwei\n" + ("drei\n" if {path, path.rpartition("/")[0]} & set(other) else "vier\n")
        )
    lock = {
        stage: {"outs": [{"path": path, "md5": 31 * "0" + str(int(path in other))} for path in paths]}
        for stage, paths in OUTS.items()
    }
    YAML().dump({"stages": lock}, folder / "dvc.lock")
    YAML().dump({"stages": {stage: {"cmd": stage} for stage in OUTS}}, folder / "dvc.yaml")
    return WorkTree(root=folder)


def rows(tmp_path: Path, other: list[str], **reports: Any) -> dict[str, dict]:
    """The rows of `verify` for outs that differ from a recorded tree in `other` and in these reports."""
    table = Agreement(tree(tmp_path / "recorded", []), tree(tmp_path / "new", other, **reports)).table()
    return {str(row["out"]): row for row in table.to_dict("records")}


def test_the_outs_that_have_a_tolerance_are_outs_of_the_pipeline():
    stages = YAML(typ="safe").load(Path("dvc.yaml"))["stages"].values()
    outs = {
        one if isinstance(one, str) else next(iter(one))
        for stage in stages
        for kind in ("outs", "metrics", "plots")
        for one in stage.get(kind, [])
    }
    exact = {
        "data/raw",
        "reports/data.html",
        "data/filtered",
        "data/tokens",
        "data/bpe.codes",
        "data/vocab.txt",
        "data/ids",
        "data/subwords.json",
        "reports/signatures.json",
    }
    assert outs - exact - {"reports/environment.json"} == RULES.keys() - {
        "data/row.json",
        "data/valid.hyp",
        "data/test.hyp",
    }


@pytest.mark.parametrize(
    ("out", "report", "verdict"),
    [
        ("reports/scores.json", {"scores": SCORES | {"bleu": 98.4}}, "within tolerance"),
        ("reports/scores.json", {"scores": SCORES | {"bleu": 98.2}}, "different"),  # 0.6 of BLEU, within 2%
        ("reports/scores.json", {"scores": SCORES | {"valid_bleu": 97.81}}, "different"),
        ("reports/scores.json", {"scores": SCORES | {"chrf": 98.5}}, "within tolerance"),
        ("reports/scores.json", {"scores": SCORES | {"ter": 1.6}}, "different"),
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
        ("reports/training.csv", {"curve": CURVE.format(5, 4) + "30,4,,0.3\n"}, "different"),
        ("reports/engines.json", {"engines": ENGINES | {"int8_identical_beam_4": 96.2}}, "within tolerance"),
        ("reports/engines.json", {"engines": ENGINES | {"int8_bleu_beam_4": 96.2}}, "different"),
        ("data/ids", {}, "different"),  # no floating point: not one byte
        ("reports/signatures.json", {}, "different"),
        ("data/raw", {}, "different"),
    ],
)
def test_counts_and_text_are_compared_exactly_and_each_score_and_loss_by_its_own_tolerance(
    tmp_path, out, report, verdict
):
    found = rows(tmp_path, [out], **report)
    assert found[out]["verdict"] == verdict
    assert {row["verdict"] for path, row in found.items() if path != out} == {"identical"}


@pytest.mark.parametrize(
    ("reports", "different"),
    [
        ({}, set()),
        ({"training": TRAINING | {"train_loss": 2.1}}, {"data/checkpoints", "data/model", "data/ct2", "data/back"}),
        ({"scores": SCORES | {"valid_bleu": 96.0}}, {"data/valid.hyp", "data/hypotheses", "data/back"}),
        ({"scores": SCORES | {"bleu": 98.0}}, {"data/test.hyp", "data/hypotheses", "data/back"}),
    ],
)
def test_weights_are_judged_by_the_losses_and_translations_by_their_scores(tmp_path, reports, different):
    outs = [
        "data/back",
        "data/checkpoints",
        "data/model",
        "data/ct2",
        "data/hypotheses",
        "data/valid.hyp",
        "data/test.hyp",
    ]
    found = rows(tmp_path, outs, **reports)
    assert {path for path in outs if found[path]["verdict"] == "different"} == different
    assert {found[path]["verdict"] for path in outs} <= {"different", "within tolerance"}


def test_the_number_of_tokens_has_a_tolerance_only_if_text_was_translated_back_differently(tmp_path):
    more = {"training": TRAINING | {"target_tokens": 1010}}
    other = ["data/back", "reports/training.json"]
    assert rows(tmp_path, other, **more)["reports/training.json"]["verdict"] == "within tolerance"
    assert rows(tmp_path, other[1:], **more)["reports/training.json"]["verdict"] == "different"


@pytest.mark.parametrize(
    ("reports", "verdict"),
    [
        ({"training": TRAINING | {"train_loss": 2.09}}, "within tolerance"),
        ({"training": TRAINING | {"train_loss": 2.11}}, "different"),
        ({"scores": SCORES | {"exact_match": 85.5}}, "within tolerance"),
        ({"scores": SCORES | {"exact_match": 84.5}}, "different"),
        ({"scores": SCORES | {"bleu": 98.2}}, "different"),  # 0.6 of BLEU
        ({"engines": ENGINES | {"int8_bleu_beam_4": 96.0}}, "within tolerance"),
        ({"engines": ENGINES | {"int8_bleu_beam_4": 95.7}}, "different"),
    ],
)
def test_on_another_processor_losses_exact_match_and_engines_have_a_wider_tolerance_and_bleu_has_not(
    tmp_path, reports, verdict
):
    (name,) = reports
    path = f"reports/{name}.json"
    pair = tree(tmp_path / "recorded", []), tree(tmp_path / "new", [path], **reports)
    found = {row["out"]: row["verdict"] for row in Agreement(*pair, like=False).table().to_dict("records")}
    assert found[path] == verdict


@pytest.mark.parametrize(("fact", "like"), [("threads", False), ("instructions", False), ("python", True)])
def test_the_verdict_names_the_measured_spread_where_the_processor_or_its_use_differs(tmp_path, capsys, fact, like):
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


def test_a_row_names_its_tolerance_the_largest_difference_and_the_share_of_equal_lines(tmp_path):
    scores = SCORES | {"bleu": 98.6, "ter": 1.4}
    other = ["data/test.hyp", "data/hypotheses", "data/back", "reports/scores.json"]
    found = rows(tmp_path, other, scores=scores)
    assert found["data/ids"]["tolerance"] == "equal"
    assert found["data/test.hyp"]["tolerance"] == "scores 0.5, exact match 2%"
    assert found["data/test.hyp"]["difference"] == "66.7% of lines equal; ter +0.4 (tolerance 0.5)"
    assert found["data/hypotheses"]["difference"] == found["data/test.hyp"]["difference"]
    assert found["data/back"]["difference"] == "66.7% of lines equal; ter +0.4 (tolerance 0.5)"
    assert found["reports/scores.json"]["difference"] == "ter +0.4 (tolerance 0.5)"
    found = rows(tmp_path, ["reports/scores.json"], scores=SCORES | {"sentences": 490})
    assert found["reports/scores.json"]["difference"] == "sentences 500 -> 490"


def test_an_out_that_the_repetition_does_not_write_is_different(tmp_path):
    recorded, new = tree(tmp_path / "recorded", []), tree(tmp_path / "new", [])
    lock = YAML(typ="safe").load(tmp_path / "new/dvc.lock")
    del lock["stages"]["average"]
    YAML().dump(lock, tmp_path / "new/dvc.lock")
    table = Agreement(recorded, new).table().set_index("stage")
    assert (table.loc["average", "new"], table.loc["average", "verdict"]) == ("missing", "different")


def test_a_repetition_uses_the_recorded_numbers_of_threads_and_processes_and_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(verify, "cores", lambda: 4)
    recorded = tree(tmp_path / "recorded", [])
    facts = tmp_path / "recorded/reports/environment.json"
    for device, threads, devices, others, wanted in (
        ("CPU", 1, 2, {}, {"OMP_NUM_THREADS": "1", "DEVICES": "2", "SHARDING": "none"}),
        ("CPU", 1, 2, {"sharding": "full"}, {"OMP_NUM_THREADS": "1", "DEVICES": "2", "SHARDING": "full"}),
        ("CPU", 8, 1, {}, {}),  # more than there are
        ("NVIDIA H200", 1, 1, {}, {}),
    ):
        facts.write_text(json.dumps({"device": device, "threads": threads, "devices": devices, **others}))
        assert as_recorded(recorded) == wanted


def test_each_fact_of_the_environment_that_differs_is_listed(tmp_path):
    recorded = tree(tmp_path / "recorded", [], environment={"torch": "2.13.0+cpu", "cpu": "A"})
    assert differences(recorded, {"torch": "2.13.0", "cpu": "A"}).empty  # a local build is the same version
    found = differences(recorded, {"torch": "2.13.0", "cpu": "B", "devices": 2}).to_dict("records")
    assert found == [
        {"fact": "cpu", "recorded": "A", "here": "B"},
        {"fact": "devices", "recorded": "not recorded", "here": "2"},
    ]


def test_an_input_outside_git_that_was_edited_is_named(tmp_path):
    recorded, new = tree(tmp_path / "recorded", []), tree(tmp_path / "new", ["data/raw"])
    for results, own in ((recorded, "a"), (new, "b")):
        lock = YAML(typ="safe").load(results.file("dvc.lock"))
        lock["stages"]["download"]["deps"] = [{"path": "own", "md5": own}, {"path": "code.py", "md5": "c"}]
        lock["stages"]["encode"]["deps"] = [{"path": "data/raw", "md5": own}]
        YAML().dump(lock, results.file("dvc.lock"))
    assert changed_inputs(recorded, new) == ["own"]


@pytest.fixture
def committed(tmp_path, monkeypatch) -> Path:
    """A git repository of two commits with a dvc.lock that needs nothing from outside, as current folder."""
    folder = tmp_path / "project"
    (folder / ".dvc").mkdir(parents=True)
    tree(folder, [])
    (folder / ".gitignore").write_text("work/\ndata/\n")
    monkeypatch.chdir(folder)
    command("git", "init", "-q")
    for message in ("first", "second"):
        (folder / ".dvc/config").write_text(f"# {message}\n")
        command("git", "add", "-A")
        command("git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", message)
    return folder


def test_a_shallow_clone_can_be_verified(committed, tmp_path, monkeypatch):
    command("git", "clone", "-q", "--depth", "1", f"file://{committed}", str(tmp_path / "shallow"))
    monkeypatch.chdir(tmp_path / "shallow")
    with own_clone(Experiment("HEAD"), keep=False) as clone:
        assert (clone / ".dvc/config").read_text() == "# second\n"
        assert not (clone / "dvc.lock").exists()


def test_a_commit_that_a_shallow_clone_lacks_is_refused_with_the_command_that_fetches_it(
    committed, tmp_path, monkeypatch
):
    command("git", "clone", "-q", "--depth", "1", f"file://{committed}", str(tmp_path / "shallow"))
    monkeypatch.chdir(tmp_path / "shallow")
    with pytest.raises(ValueError, match=r"HEAD~1 is not .* shallow clone: `git fetch --unshallow` fetches"):
        Experiment("HEAD~1")


def test_two_at_once_have_clones_of_their_own_that_clean_keeps(committed, capsys):
    with own_clone(Experiment("HEAD"), keep=False) as one, own_clone(Experiment("HEAD"), keep=True) as other:
        assert one != other
        assert clean.in_use(one.parent)
        assert clean.in_use(other.parent)
        assert (one / "work/cores").resolve() == (other / "work/cores").resolve() == committed / "work/cores"
        assert not clean.removed(one.parent)
        assert (one / "reports/scores.json").exists()
    assert not one.parent.exists()
    assert other.exists()
    assert not clean.in_use(other.parent)


def test_a_corpus_beside_the_project_is_copied_beside_the_clone_and_removed_with_it(committed):
    lock = YAML(typ="safe").load(committed / "dvc.lock") or {}
    lock["stages"] = {"download": {"deps": [{"path": "../../corpus", "md5": "0"}]}}
    YAML().dump(lock, committed / "dvc.lock")
    command("git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qam", "a corpus beside the project")
    corpus = committed.parent.parent / "corpus"
    corpus.mkdir()
    (corpus / "train.de").write_text("eins\n")
    with own_clone(Experiment("HEAD"), keep=False) as clone:
        assert (clone / "../../corpus/train.de").read_text() == "eins\n"
        assert (clone / "../../corpus").resolve().is_relative_to(committed / "work")
    assert {path.name for path in (committed / "work").iterdir() if path.is_dir()} == {"cores", "gpus"}
    shutil.rmtree(corpus)


def test_a_stage_that_was_removed_from_the_pipeline_is_not_compared(tmp_path):
    pair = tree(tmp_path / "recorded", []), tree(tmp_path / "new", [])
    for results, stages in zip(pair, ({**OUTS, "extra": ["data/extra"]}, OUTS), strict=True):
        lock = {stage: {"outs": [{"path": path, "md5": "0" * 32} for path in paths]} for stage, paths in stages.items()}
        YAML().dump({"stages": lock}, results.file("dvc.lock"))
    assert "data/extra" not in set(Agreement(*pair).table()["out"])


def test_a_loss_of_zero_can_be_compared(tmp_path):
    found = list(curves("step,valid_loss\n1,0.0\n2,1.0\n", "step,valid_loss\n1,0.0\n2,1.01\n", 0.02))
    assert [one.share <= 1 for one in found if one.name == "curve of valid_loss"] == [True]
    found = list(curves("step,valid_loss\n1,0.0\n", "step,valid_loss\n1,0.1\n", 0.02))
    assert max(one.share for one in found) > 1


def test_a_commit_of_an_experiment_is_cloned_though_no_branch_has_it(committed):
    digest = command("git", "rev-parse", "HEAD").strip()
    command("git", "reset", "-q", "--hard", "HEAD~1")
    with own_clone(Experiment("exp", digest), keep=False) as clone:
        assert (clone / ".dvc/config").read_text() == "# second\n"


VERIFY = """
import signal, sys
from pipeline.experiments.verify import own_clone, repeat, stop_by_signal
from pipeline.tracking.results import Experiment
stop_by_signal()
with own_clone(Experiment("HEAD"), keep=False) as clone:
    repeat(clone, {})
"""
ENDLESS = """
import os, pathlib, time
pathlib.Path(os.environ["CHILD"]).write_text(str(os.getpid()))
print("Running stage 'train':", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_sigterm_or_a_closed_terminal_stops_the_stages_and_removes_the_clone(committed, tmp_path, number):
    (committed / "dvc.py").write_text(ENDLESS)  # runs in place of DVC
    command("git", "add", "-A")
    command("git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "a stage that does not end")
    child, root = tmp_path / "child", Path(verify.__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", VERIFY],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(root), "CHILD": str(child)},
    )
    assert process.stdout
    assert process.stdout.readline() == "Running stage 'train':\n"
    process.send_signal(number)
    assert process.wait() == 128 + number
    assert not list((committed / "work").glob("verify-*"))
    with pytest.raises(ProcessLookupError):
        os.kill(int(child.read_text()), 0)


def test_a_clone_whose_lock_is_free_is_removed_by_clean(tmp_path):
    (tmp_path / "verify-x").mkdir()
    with FileLock(tmp_path / "verify-x/lock"):
        assert not clean.removed(tmp_path / "verify-x")
    assert clean.removed(tmp_path / "verify-x")
