"""Sweeps, a lost database and the run cache: each configuration has one complete MLflow run."""

from __future__ import annotations

import json
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


def test_a_sweep_over_training_knobs_does_not_repeat_the_preprocessing(project):
    logs = [command(project, "dvc", "queue", "logs", name) for name in names(project)]
    stages = [set(re.findall(r"Running stage '(\w+)'", log)) for log in logs]
    assert not {"download", "tokenise", "learn_bpe", "build_vocab", "encode"} & set.union(*stages)
    assert sum("train" in names for names in stages) == 3  # the fourth has the configuration of the commit


def test_each_experiment_has_the_difference_to_its_baseline_commit(project):
    metrics = [run.data.metrics for run in runs(project) if "delta_bleu" in run.data.metrics]
    assert len(metrics) == 3  # the fourth has the configuration of the commit, so there is no difference
    assert all({"delta_bleu", "p_randomisation"} <= set(values) for values in metrics)
    assert all(0 <= values["p_randomisation"] <= 1 for values in metrics)


def test_a_run_names_its_data_machine_commit_and_stages(project):
    (run,) = [run for run in runs(project) if (run.data.params["warmup"], run.data.params["seed"]) == ("8", "2")]
    tags, metrics = run.data.tags, run.data.metrics
    assert {f"dvc_{name}" for name in ("download", "train", "translate", "score", "report")} <= set(tags)
    assert {"env_torch", "env_cpu", "env_devices", "signature_bleu", "recorded_at", "DVC_EXP_NAME"} <= set(tags)
    assert {"learning_rate", "valid_loss", "train_loss"} <= set(metrics)
    data = {entry.dataset.name: json.loads(entry.dataset.profile) for entry in run.inputs.dataset_inputs}
    assert data["own train.src"]["lines"] == 150
    assert len(data["own test.tgt"]["sha256"]) == 64


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
