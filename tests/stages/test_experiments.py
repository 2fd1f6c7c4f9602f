"""Sweeps, a lost database and the run cache: each configuration has one complete MLflow run."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest
from support.projects import command, runs, seen, small_project

pytestmark = pytest.mark.full
SWEEP = ["warmup=4,8", "seed=1,2"]
TRACK = (sys.executable, "-m", "pipeline", "track")


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A small project that was run and committed, and then a sweep of four experiments by two workers."""
    folder = small_project(tmp_path_factory.mktemp("project") / "project")
    command(folder, "dvc", "exp", "run", "--queue", *(word for override in SWEEP for word in ("-S", override)))
    command(folder, "dvc", "queue", "start", "--jobs", "2")
    for name in names(folder):
        command(folder, "dvc", "queue", "logs", "--follow", name)
    while "Running" in command(folder, "dvc", "queue", "status"):
        time.sleep(1)
    return folder


def names(folder: Path) -> list[str]:
    """The names of the tasks of DVC's queue."""
    lines = command(folder, "dvc", "queue", "status").split("\n")
    return [words[1] for words in map(str.split, lines) if words and re.fullmatch("[0-9a-f]{7}", words[0])]


def test_two_workers_write_one_run_per_configuration(project):
    assert command(project, "dvc", "queue", "status").count("Success") == 4
    assert all("bleu" in run.data.metrics for run in runs(project))
    # the first has the configuration of the commit, and shares its run
    assert sorted((run.data.params["warmup"], run.data.params["seed"], run.info.status) for run in runs(project)) == [
        (warmup, seed, "FINISHED") for warmup in "48" for seed in "12"
    ]


def test_track_rebuilds_a_lost_database_and_a_second_one_adds_nothing(project):
    command(project, "dvc", "exp", "run", "--temp", "-S", "beam_size=2")
    before = seen(project)
    assert len(before) == 5
    (project / "mlflow.db").rename(project / "work/lost.db")
    assert command(project, *TRACK).startswith("5 written")
    assert seen(project) == before
    everything = [run.to_dictionary() for run in runs(project)]
    assert command(project, *TRACK).startswith("5 there")
    assert [run.to_dictionary() for run in runs(project)] == everything


def test_a_configuration_from_the_run_cache_gets_its_run(project):
    (project / "mlflow.db").unlink()
    output = command(project, "dvc", "exp", "run", "--temp", "--name", "again", "-S", "warmup=8")
    assert re.findall(r"Running stage '(\w+)'", output) == ["record"]
    (run,) = runs(project)
    assert (run.data.params["warmup"], run.info.run_name) == ("8", "again")
    command(project, *TRACK)
    assert len(runs(project)) == 5
