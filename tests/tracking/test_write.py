"""What `record` and `track` write: one run per configuration in a store, whoever computed it, however often."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from support.runs import (
    KEYS,
    PARAMS,
    SCORES,
    configuration,
    curve,
    opened,
    record,
    score,
    start,
    steps,
    train,
    training,
)

from pipeline.tracking import store as tracking


def text(root: Path, run_id: str, name: str) -> str:
    """The text of a file of a run."""
    return Path(opened(root).client.download_artifacts(run_id, name)).read_text()


def test_one_run_however_often_it_is_trained_and_recorded(root, key):
    run_id = train(root, key)
    data = [{"name": "toy test.src", "sha256": "a" * 64, "lines": 3, "context": "test"}]
    for _ in range(2):
        record(root, {**configuration(key, f"{key} c"), "datasets": data, "texts": {"valid.hyp": "a\n"}})
        assert train(root, key) == run_id  # dvc repro --force
    run = opened(root).client.get_run(run_id)
    assert run.data.params == {name: str(value) for name, value in PARAMS.items()}
    assert {name: run.data.metrics[name] for name in SCORES} == SCORES
    assert [steps(opened(root), run_id, name) for name in SCORES] == [[0]] * len(SCORES)
    assert steps(opened(root), run_id, "valid_loss") == [30, 60]
    assert (run.info.status, run.data.tags["git_commit"]) == ("FINISHED", "abc")
    assert (len(run.inputs.dataset_inputs), text(root, run_id, "valid.hyp")) == (1, "a\n")


def test_a_result_from_a_cache_or_a_pull_gets_its_run_and_curve(root, key):
    run_id = score(root, key, key, last=12_000)  # 1,200 rows: more than a message of MLflow may hold
    for metric in ("train_loss", "learning_rate"):
        assert steps(opened(root), run_id, metric) == list(range(10, 12_010, 10))


def test_each_search_of_a_shared_training_has_its_own_run(root, key):
    for beam in (4, 8):  # the second worker trains before the first one has scored
        train(root, key, beam_size=beam)
    for beam in (8, 4, 1):
        score(root, key, f"{key} {beam}", beam_size=beam)
    score(root, key, f"{key} other translations", beam_size=4)
    runs = {run.data.tags["config_key"].removeprefix(f"{key} "): run for run in opened(root).runs(key)}
    assert {name: run.data.params["beam_size"] for name, run in runs.items()} == {
        "4": "4",
        "8": "8",
        "1": "1",
        "other translations": "4",
    }
    first, *rest = ([steps(opened(root), run.info.run_id, name) for name in KEYS] for run in runs.values())
    assert all(points == first for points in rest)


def test_the_first_recording_says_where_a_run_comes_from(root, key):
    first = {"git_commit": "one", "mlflow.user": "anna", "env_cpu": "x", "dvc_score": "a"}
    second = {"git_commit": "two", "git_dirty": "true", "env_cpu": "y", "dvc_score": "b"}
    for tags, scores in ((first, {**SCORES, "delta_bleu": 1.0}), (second, {**SCORES, "bleu": 30.0, "delta_bleu": 2.0})):
        run_id = record(root, {**configuration(key, key), "tags": tags, "scores": scores}).info.run_id
        opened(root).client.update_run(run_id, name="typed in the page")
    run = opened(root).client.get_run(run_id)
    assert [run.data.tags.get(name) for name in (*second, "mlflow.user")] == ["one", None, "x", "b", "anna"]
    assert (run.data.metrics["bleu"], run.data.metrics["delta_bleu"]) == (30.0, 1.0)
    assert run.info.run_name == "typed in the page"


def test_the_run_of_an_experiment_has_its_name(root, key, monkeypatch):
    monkeypatch.setenv("DVC_EXP_NAME", "wordy-bird")
    other = opened(root).client.create_run(opened(root).experiment_id).info.run_id
    monkeypatch.setenv("MLFLOW_RUN_ID", other)  # has no effect
    run_id = train(root, key)
    assert score(root, key, key) == run_id != other
    assert opened(root).client.get_run(run_id).info.run_name == "wordy-bird"


def test_record_makes_a_run_again_that_was_deleted(root, key):
    deleted = score(root, key, key)
    opened(root).client.delete_run(deleted)
    again = score(root, key, key)
    assert again != deleted
    opened(root).client.restore_run(deleted)
    assert score(root, key, key) == deleted  # the one that began first
    assert [run.info.run_id for run in opened(root).runs(key)] == [deleted]


def test_a_member_who_may_not_delete_a_double_run_marks_it(root, key, monkeypatch):
    def refuse(*_) -> None:
        error = MlflowException("Permission denied")
        error.error_code = "PERMISSION_DENIED"
        raise error

    first = score(root, key, key)
    double = opened(root).client.create_run(opened(root).experiment_id, tags={"train_key": key, "config_key": key})
    monkeypatch.setattr(MlflowClient, "delete_run", refuse)
    assert score(root, key, key) == first
    run = opened(root).client.get_run(double.info.run_id)
    assert run.data.tags["duplicate_of"] == first
    assert [run.info.run_id for run in opened(root).runs(key)] == [first]


CLONE = """
import sys
from pathlib import Path
from support.runs import curve, opened, score, training
from pipeline.tracking import live, store
live.PAUSE, live.WAIT, store.WAIT = 0, 100, 100  # a busy machine must not fail this test
root, key, configs = Path(sys.argv[1]), sys.argv[2], sys.argv[3].split()
opened(root)
print("ready", flush=True)
sys.stdin.readline()
for config in configs:
    with training(root, f"{key} {config}") as run:
        run.log_curve(curve(60))
        run.log_curve(curve(120))
    score(root, f"{key} {config}", f"{key} {config}", last=120)
"""


@pytest.mark.parametrize("kind", [pytest.param("server", marks=pytest.mark.full), "sqlite"])
def test_two_clones_at_once_make_one_run_per_configuration(tmp_path, request, key, kind):
    uri = request.getfixturevalue("team_server") if kind == "server" else f"sqlite:///{tmp_path}/team.db"
    clones = [
        start(CLONE, str(tmp_path / f"clone{number}"), key, configs, MLFLOW_TRACKING_URI=uri)
        for number, configs in enumerate(("a b", "a c"))
    ]
    for clone in clones:
        assert clone.stdout
        assert clone.stdin
        assert clone.stdout.readline() == "ready\n"
    for clone in clones:
        clone.stdin.write("go\n")
        clone.stdin.flush()
    assert [clone.communicate()[1] for clone in clones] == ["", ""]
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("translation")
    runs = client.search_runs([experiment.experiment_id], f"tags.train_key LIKE '{key}%'")
    assert sorted(run.data.tags.get("config_key") for run in runs) == [f"{key} {config}" for config in "abc"]
    for run in runs:
        points = client.get_metric_history(run.info.run_id, "train_loss")
        assert ([point.step for point in points], run.info.status) == (list(range(10, 130, 10)), "FINISHED")


def test_the_same_training_in_two_clones_writes_into_two_runs(tmp_path, root, key, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", opened(root).uri)
    clones = tmp_path / "one", tmp_path / "two"
    with training(clones[0], key) as first, training(clones[1], key) as second:
        first.log_curve(curve(50))
        second.log_curve(curve(30))
    runs = opened(clones[0]).runs(key)
    assert sorted(len(steps(opened(root), run.info.run_id, "train_loss")) for run in runs) == [3, 5]
    assert len({score(clone, key, key) for clone in clones}) == len(opened(root).runs(key)) == 1


def test_a_copied_project_puts_no_files_into_the_original(root, key, tmp_path):
    train(root, key)
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    before = sorted(root.rglob("*"))
    record(copy, {**configuration(key, "c"), "texts": {"report.html": "report"}})
    assert sorted(root.rglob("*")) == before
    assert not opened(copy).takes_artifacts
    assert tracking.clone_id(copy) != tracking.clone_id(root)
    clone = tracking.clone_id(copy)
    assert tracking.clone_id(copy.rename(tmp_path / "moved")) == clone
