"""The live curve: one run however often a training is killed, and no training that waits for a store."""

from __future__ import annotations

import os
import platform
import socket
from contextlib import suppress
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from support.runs import curve, opened, score, start, steps, train, training, wait_for_steps

from pipeline.results.track import rebuild
from pipeline.tracking import live, store
from pipeline.tracking.open_runs import PROCESS
from pipeline.tracking.store import SAMPLES

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


def unused_address() -> str:
    """An address at which no server listens."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{closed.getsockname()[1]}"


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
    (run,) = opened(root).runs(key)
    assert (run.info.status, run.data.tags["mlflow.source.name"]) == (status, "dvc")
    assert run.data.params["warmup"] == "100"


def track(root: Path, key: str) -> None:
    """Do what `track` and `ui` do, in a folder without git."""
    with pytest.raises(ValueError, match="is not in a git repository"):
        rebuild(root)


NEXT = {"train": train, "record": lambda root, key: score(root, key, key), "track": track}


@pytest.mark.parametrize("command", NEXT)
def test_a_run_whose_process_has_ended_is_killed_by_the_next(root, key, command, monkeypatch):
    ended = start("")
    ended.communicate()
    client = opened(root).client
    abandoned, elsewhere, running = (train(root, f"{key} {number}") for number in range(3))
    client.set_tag(abandoned, PROCESS, f"{platform.node()} {ended.pid} 0")
    client.set_tag(elsewhere, PROCESS, f"another host {ended.pid} 0")
    monkeypatch.chdir(root)
    NEXT[command](root, f"{key} next")
    infos = [client.get_run(run_id).info for run_id in (abandoned, elsewhere, running)]
    assert [run.status for run in infos] == ["KILLED", "RUNNING", "RUNNING"]
    assert infos[0].end_time == client.get_metric_history(abandoned, "train_loss")[-1].timestamp


def test_a_store_that_is_down_costs_a_training_one_line(root, key, monkeypatch, capfd):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://{unused_address()}")
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
    tries, seconds = (float(os.environ[f"MLFLOW_HTTP_REQUEST_{name}"]) for name in ("MAX_RETRIES", "TIMEOUT"))
    assert (tries + 1) * seconds + 1 < 10  # a second: MLflow's pause between two tries
    assert store.WAIT <= 10
    monkeypatch.setattr(live, "WAIT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the system connects; nobody answers
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with training(root, key) as run:
            run.log_curve(curve(60))
    assert capfd.readouterr().err.count("MLflow has not answered within 0.2 s") == 1


@pytest.mark.parametrize("address", ["http://me:geheim@{}", "postgresql+psycopg://me:geheim@{}/runs"])
def test_passwords_are_neither_printed_nor_written(tmp_path, key, monkeypatch, capfd, address):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address.format(unused_address()))
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
        (stopped,) = opened(root).runs(key)
        assert Path(opened(root).client.download_artifacts(stopped.info.run_id, SAMPLES)).read_text() == text


def test_load_and_memory_of_the_machine_are_in_the_run(root, key, monkeypatch):
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.1")
    with training(root, key) as run:
        run.log_curve(curve(10))
        run_id = wait_for_steps(root, key, 10)
        while not steps(opened(root), run_id, "system/cpu_utilization_percentage"):
            pass
