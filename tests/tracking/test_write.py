"""What `record` and `track` write: one run per configuration in a store, whoever computed it, however often."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import mlflow.data
import pytest
from mlflow import MlflowClient
from support.runs import KEYS, PARAMS, SCORES, configuration, opened, record, runs_of, score, steps, train


def text(root: Path, run_id: str, name: str) -> str:
    """The text of a file of a run."""
    return Path(opened(root).client.download_artifacts(run_id, name)).read_text()


def test_one_run_however_often_it_is_trained_and_recorded(root, key):
    run_id = train(root, key)
    data = [{"name": "toy test.src", "path": "a/b", "sha256": "a" * 64, "lines": 3, "context": "test"}]
    for _ in range(2):
        record(root, {**configuration(key, f"{key} c"), "datasets": data, "texts": {"valid.hyp": "a\n"}})
        assert train(root, key) == run_id  # dvc repro --force
    run = opened(root).client.get_run(run_id)
    assert run.data.params == {name: str(value) for name, value in PARAMS.items()}
    assert {name: run.data.metrics[name] for name in SCORES} == SCORES
    assert [steps(opened(root), run_id, name) for name in SCORES] == [[0]] * len(SCORES)
    assert steps(opened(root), run_id, "valid_loss") == [30, 60]
    assert (run.info.status, run.data.tags["recorded_at"]) == ("FINISHED", "abc")
    (dataset,) = run.inputs.dataset_inputs
    assert (mlflow.data.get_source(dataset).uri, text(root, run_id, "valid.hyp")) == ("a/b", "a\n")


def test_no_step_is_twice_though_a_resumed_training_rounds_otherwise(root, key):
    run_id = train(root, key)
    fields = configuration(key, f"{key} c")
    fields["curve"] = [{**row, "train_loss": row["train_loss"] * (1 + 1e-7)} for row in fields["curve"]]
    record(root, fields)
    assert steps(opened(root), run_id, "train_loss") == [10, 20, 30, 40, 50, 60]
    assert steps(opened(root), run_id, "valid_loss") == [30, 60]


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
    runs = {run.data.tags["config_key"].removeprefix(f"{key} "): run for run in runs_of(root, key)}
    assert {name: run.data.params["beam_size"] for name, run in runs.items()} == {
        "4": "4",
        "8": "8",
        "1": "1",
        "other translations": "4",
    }
    first, *rest = ([steps(opened(root), run.info.run_id, name) for name in KEYS] for run in runs.values())
    assert all(points == first for points in rest)


def test_a_finished_run_is_not_written_again(root, key):
    first, second = {"recorded_at": "one", "mlflow.user": "anna"}, {"recorded_at": "two", "mlflow.user": "ben"}
    for tags in (first, second):
        run_id = record(root, {**configuration(key, key), "tags": tags}).info.run_id
        opened(root).client.update_run(run_id, name="typed in the page")
    run = opened(root).client.get_run(run_id)
    assert (run.data.tags["recorded_at"], run.data.tags["mlflow.user"]) == ("one", "anna")
    assert run.info.run_name == "typed in the page"


def test_a_recording_that_was_killed_is_completed(root, key, monkeypatch):
    def fail(*words, **named) -> None:
        raise KeyboardInterrupt

    log_inputs = MlflowClient.log_inputs
    monkeypatch.setattr(MlflowClient, "log_inputs", fail)
    with pytest.raises(KeyboardInterrupt):
        score(root, key, key)
    monkeypatch.setattr(MlflowClient, "log_inputs", log_inputs)
    (half,) = runs_of(root, key)
    assert half.info.status == "RUNNING"
    assert score(root, key, key) == half.info.run_id
    assert steps(opened(root), half.info.run_id, "train_loss") == [10, 20, 30, 40, 50, 60]
    assert len(runs_of(root, key)) == 1


def test_a_server_has_ten_minutes_for_a_file_and_seconds_else(root, key, monkeypatch):
    seen = {}
    for name in ("log_text", "log_batch"):
        monkeypatch.setattr(MlflowClient, name, lambda *words, name=name, **named: seen.update({name: timeout()}))
    record(root, {**configuration(key, key), "texts": {"report.html": "report"}})
    assert seen == {"log_text": "600", "log_batch": "4"}
    assert timeout() == "4"


def timeout() -> str:
    """The seconds that MLflow gives a request."""
    return os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"]


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
    assert score(root, key, key) != deleted


def test_a_copied_project_puts_no_files_into_the_original(root, key, tmp_path):
    train(root, key)
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    before = sorted(root.rglob("*"))
    record(copy, {**configuration(key, "c"), "texts": {"report.html": "report"}})
    assert sorted(root.rglob("*")) == before
    assert not opened(copy).takes_artifacts
