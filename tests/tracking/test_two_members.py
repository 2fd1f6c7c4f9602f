"""Two members of a team, each with a clone and two workers, on one closed server: each configuration has one run."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient
from support.projects import PATHS, command, prepared_project
from support.servers import TeamServer, closed_server

from pipeline.tracking.runs_table import RUNS

pytestmark = pytest.mark.full
SHARED = [["warmup=4,8", "seed=1,2"]]
OWN = {"anna": [["beam_size=1,2,3,5"]], "ben": [["length_penalty=0.1,0.2,0.3,0.4"]]}
CURVE = ("train_loss", "valid_loss", "learning_rate")


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[TeamServer]:
    """The server of deploy/ with two members."""
    with closed_server(tmp_path_factory.mktemp("team")) as started:
        for name in OWN:
            started.add_member(name)
        yield started


@pytest.fixture(scope="module")
def clones(tmp_path_factory, shared_folder) -> dict[str, Path]:
    """A clone of a small project for each member. All of its stages have run before, without this server."""
    base = tmp_path_factory.mktemp("clones")
    first = prepared_project(shared_folder, base / "first")
    shutil.rmtree(first / "work")
    return {name: Path(shutil.copytree(first, base / name)) for name in OWN}


def member(server: TeamServer, name: str) -> dict[str, str]:
    """The variables that a member sets."""
    env = server.member(name)
    return {key: env[key] for key in env if key.startswith("MLFLOW_")}


@pytest.fixture
def client(server, monkeypatch) -> MlflowClient:
    """A client of a member."""
    for name, value in member(server, "anna").items():
        monkeypatch.setenv(name, value)
    return MlflowClient(server.address)


def runs_of(client: MlflowClient) -> list:
    """The runs that the table shows."""
    experiment = client.get_experiment_by_name("translation")
    return client.search_runs([experiment.experiment_id], RUNS) if experiment else []


def steps(client: MlflowClient, run, metric: str) -> list[int]:
    """The steps of a metric of a run, each as often as the server has it."""
    return sorted(point.step for point in client.get_metric_history(run.info.run_id, metric))


def contents(client: MlflowClient) -> dict[str, tuple]:
    """config_key of each run -> its status, params, curve and scores."""
    table = {}
    for run in runs_of(client):
        curve = {
            name: {point.step: point.value for point in client.get_metric_history(run.info.run_id, name)}
            for name in CURVE
        }
        scores = {name: value for name, value in run.data.metrics.items() if "bleu" in name or name in ("chrf", "ter")}
        table[run.data.tags["config_key"]] = (run.info.status, run.data.params, curve, scores)
    return table


def work_off(clones: dict[str, Path], server: TeamServer) -> None:
    """Queue eight experiments in each clone, four of which are the same, and let two workers of each run them."""
    for name, folder in clones.items():
        for words in SHARED + OWN[name]:
            command(folder, "dvc", "exp", "run", "--queue", *(part for word in words for part in ("-S", word)))
    for name, folder in clones.items():
        command(folder, "dvc", "queue", "start", "--jobs", "2", **member(server, name))
    for folder in clones.values():
        while any(word in (status := command(folder, "dvc", "queue", "status")) for word in ("Running", "Queued")):
            time.sleep(1)
        assert status.count("Success") == 8, status


def test_configurations_of_two_members_have_one_run_each(clones, server, client):
    work_off(clones, server)
    for name, folder in clones.items():
        command(folder, sys.executable, "-m", "pipeline", "track", **member(server, name))
    runs = runs_of(client)
    assert len(runs) == len({run.data.tags.get("config_key") for run in runs}) == 12
    for run in runs:
        assert run.info.status == "FINISHED"
        for metric in ("train_loss", "learning_rate"):
            assert steps(client, run, metric) == [2, 4, 6, 8, 10, 12]
        assert steps(client, run, "valid_loss") == [4, 8, 12]


def test_a_dropped_database_is_rebuilt_by_track_in_each_clone(clones, server, client):
    before = contents(client)
    server.lose_database()
    for name, folder in clones.items():
        server.add_member(name)
        command(folder, sys.executable, "-m", "pipeline", "track", **member(server, name))
    assert contents(client) == before


def test_a_server_killed_during_a_training_has_all_after_record(clones, server, client):
    known = {run.info.run_id for run in runs_of(client)}
    # a training of half a minute: the server is away for some seconds of it
    words = ["dvc", "exp", "run", "-S", "max_steps=6000", "-S", "save_every=100", "-S", "log_every=50"]
    work = subprocess.Popen(
        words,
        cwd=clones["ben"],
        env={**server.member("ben"), "PATH": PATHS, "PYTHONPATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    while not (new := [run for run in runs_of(client) if run.info.run_id not in known and run.data.metrics]):
        assert work.poll() is None
        time.sleep(0.5)
    assert new[0].info.status == "RUNNING"
    server.mlflow.kill()
    time.sleep(7)  # longer than the time between two messages, so that one fails
    server.mlflow.start()
    server.wait()
    output = work.communicate()[0]
    assert work.returncode == 0, output
    assert "Tracking ended" in output
    run = client.get_run(new[0].info.run_id)
    assert run.info.status == "FINISHED"
    for metric in ("train_loss", "learning_rate"):
        assert steps(client, run, metric) == list(range(50, 6001, 50))
    assert "bleu" in run.data.metrics
