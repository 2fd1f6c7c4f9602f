"""What a finished run contains is what dvc.lock names, and nothing that lies beside it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.projects import params_file
from support.results import REFERENCES, commit_result, start_project

from pipeline.tracking import content
from pipeline.workflow.dvc_lock import Result, result_of

WORSE = REFERENCES.replace("e f g h", "x")


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A project with the results `first`, `other` and `back`; the work tree has no data."""
    folder = tmp_path_factory.mktemp("project").resolve()
    start_project(folder)
    commit_result(folder, "first")
    commit_result(folder, "other", files={"data/hypotheses/test.hyp": WORSE}, beam_size=1)
    back = "step,train_loss,valid_loss\n10,0.1,\n20,0.30000000000000004,1.5\n"
    commit_result(folder, "back", files={"data/back/training.csv": back})
    shutil.rmtree(folder / "data")
    return folder


def test_a_run_is_what_dvc_lock_says_whatever_lies_beside_it(inside):
    before = content.finished_run(Result(), {"recorded_at": "01"})
    params_file(inside, warmup=77)
    for path in ("reports/scores.json", "reports/training.csv", "reports/report.html"):
        (inside / path).unlink()
        (inside / path).write_text("edited\n")
    assert content.finished_run(Result(), {"recorded_at": "01"}) == before
    assert before.params["warmup"] == 4
    assert (before.train_key, before.tags["recorded_at"], before.tags["env_cpu"]) == ("key", "01", "A")
    assert before.texts["valid.hyp"] == REFERENCES
    assert [data["lines"] for data in before.datasets] == [3] * 6
    assert {"dvc_train", "dvc_score"} <= before.tags.keys()
    assert "dvc_compare_engines" not in before.tags


def test_other_knobs_or_translations_are_another_configuration(inside):
    keys = {name: content.config_key(result_of(name)) for name in ("first", "other", "back")}
    assert keys["first"] == keys["back"] != keys["other"]


def test_the_curve_of_the_model_that_translates_back_is_added(inside):
    plain = [{"step": 10, "train_loss": 2.5, "valid_loss": None}, {"step": 20, "train_loss": 2.0, "valid_loss": 1.5}]
    assert content.curve(result_of("first")) == plain
    assert content.curve(result_of("back")) == [
        *plain,
        {"step": 10, "back_train_loss": 0.1, "back_valid_loss": None},
        {"step": 20, "back_train_loss": 0.30000000000000004, "back_valid_loss": 1.5},
    ]


def test_an_experiment_has_its_difference_from_where_it_started(inside):
    first, other = result_of("first"), result_of("other")
    scores = content.finished_run(other, {"DVC_EXP_BASELINE_REV": str(first.commit)}).scores
    assert scores["delta_bleu"] < 0
    assert 0 < scores["p_randomisation"] <= 1
    assert content.compare_with_baseline(first, result_of("back")) == {}  # the same configuration
    assert content.compare_with_baseline(first, Result("start", "first~1")) == {}  # a commit without a result


def test_scores_of_other_signatures_have_no_difference(inside, monkeypatch):
    monkeypatch.setattr(Result, "signatures", lambda self: {"bleu": self.name})
    assert content.compare_with_baseline(result_of("other"), result_of("first")) == {}
