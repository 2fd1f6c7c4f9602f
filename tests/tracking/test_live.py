"""The live curve: one run however often a training is killed, and no training that waits for a store."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from support.runs import curve, opened, runs_of, score, start, steps, train, training, wait_for_steps
from support.servers import free_port

from pipeline.tracking import live
from pipeline.tracking.live import SAMPLES

KILLED = """
import sys
from pathlib import Path
from support.runs import curve, training, wait_for_steps
root, key = Path(sys.argv[1]), sys.argv[2]
with training(root, key) as run:
    run.log_curve(curve(40))
    print(wait_for_steps(root, key, 40), flush=True)
    sys.stdin.read()
"""


def test_a_training_killed_again_and_again_has_each_step_once(root, key):
    child = start(KILLED, str(root), key)
    assert child.stdout
    run_id = child.stdout.readline().strip()
    child.kill()
    child.communicate()
    client = opened(root).client
    assert client.get_run(run_id).info.status == "RUNNING"
    for last in (30, 60, 110):  # a state is older than the last point, or newer if the store was away
        with suppress(KeyboardInterrupt), training(root, key) as run:
            run.log_curve(curve(last - 10))
            run.log_curve(curve(last)[-1:])
            raise KeyboardInterrupt
        assert client.get_run(run_id).info.status == "KILLED"
    assert train(root, key, last=120) == run_id
    assert client.get_run(run_id).info.status == "RUNNING"
    assert score(root, key, key, last=120) == run_id
    assert client.get_run(run_id).info.status == "FINISHED"
    for metric in ("train_loss", "learning_rate"):
        assert steps(opened(root), run_id, metric) == list(range(10, 130, 10))
    assert steps(opened(root), run_id, "valid_loss") == [30, 60, 90, 120]


@pytest.mark.parametrize(("error", "status"), [(SystemExit(143), "KILLED"), (ValueError("loss is nan"), "FAILED")])
def test_an_interrupted_run_has_the_status_of_its_end(root, key, error, status):
    with pytest.raises(type(error)), training(root, key):
        raise error
    (run,) = runs_of(root, key)
    assert (run.info.status, run.data.tags["mlflow.source.name"]) == (status, "dvc")
    assert run.data.params["warmup"] == "100"


def test_a_run_that_cannot_be_continued_is_made_again(root, key, tmp_path, monkeypatch):
    """One that a person deleted, and one of another store."""
    first = train(root, key)
    opened(root).client.delete_run(first)
    second = train(root, key)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/other.db")
    third = train(root, key)
    assert len({first, second, third}) == 3
    assert score(root, key, key) == third
    assert steps(opened(root), third, "train_loss") == [10, 20, 30, 40, 50, 60]


def test_a_store_that_is_down_costs_a_training_one_line(root, key, monkeypatch, capfd):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{free_port()}")
    with training(root, key) as run:
        for last in range(10, 70, 10):
            run.log_curve(curve(last)[-1:])
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("Tracking ended for this stage: ")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert steps(opened(root), score(root, key, key), "train_loss") == [10, 20, 30, 40, 50, 60]


def test_a_store_that_dies_gets_the_rest_from_record(root, key, monkeypatch, capfd):
    log_batch = MlflowClient.log_batch

    def log_two(self, run_id, metrics=(), **rest) -> None:
        if len(steps(opened(root), run_id, "train_loss")) >= 2:
            raise MlflowException("the server was killed")
        log_batch(self, run_id, metrics, **rest)

    with training(root, key) as run:
        run.log_curve(curve(20))
        run_id = wait_for_steps(root, key, 20)
        monkeypatch.setattr(MlflowClient, "log_batch", log_two)
        run.log_curve(curve(40))
        run.log_curve(curve(60))
    assert capfd.readouterr().err.count("\n") == 1
    monkeypatch.setattr(MlflowClient, "log_batch", log_batch)
    assert score(root, key, key) == run_id
    assert steps(opened(root), run_id, "train_loss") == [10, 20, 30, 40, 50, 60]


def test_a_store_that_never_answers_does_not_hold_a_training(root, key, monkeypatch, capfd):
    monkeypatch.setattr(live, "WAIT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the system connects; nobody answers
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with training(root, key) as run:
            run.log_curve(curve(60))
    assert capfd.readouterr().err.count("MLflow has not answered within 0.2 s") == 1


def test_a_slow_file_is_waited_for_at_the_end_of_a_training(root, key, monkeypatch, capfd):
    monkeypatch.setattr(live, "WAIT", 0.2)
    send = live.LiveRun._send
    monkeypatch.setattr(live.LiveRun, "_send", lambda *words: time.sleep(1) or send(*words))
    assert steps(opened(root), train(root, key), "train_loss")[-1] == 60
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("address", ["http://me:geheim@{}", "postgresql+psycopg://me:geheim@{}/runs"])
def test_passwords_are_neither_printed_nor_written(tmp_path, key, monkeypatch, capfd, address):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address.format(f"127.0.0.1:{free_port()}"))
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "geheim")
    with training(tmp_path, key) as run:
        run.log_curve(curve(60))
    printed = capfd.readouterr().err
    assert "Tracking ended" in printed
    assert "geheim" not in printed + "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())


def test_samples_of_a_stopped_training_are_replaced_later(root, key, tmp_path):
    for text in ("step\n30\n", "step\n30\n60\n"):
        with suppress(SystemExit), training(root, key) as run:
            run.log_samples(text)
            raise SystemExit(143)
        (stopped,) = runs_of(root, key)
        assert Path(opened(root).client.download_artifacts(stopped.info.run_id, SAMPLES)).read_text() == text
