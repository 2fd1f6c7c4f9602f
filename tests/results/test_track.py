"""`track` writes the runs that are missing: after a server was away, or a run was deleted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.projects import command, params_file, prepared_project, reader, runs, seen

pytestmark = pytest.mark.full
TRACK = (sys.executable, "-m", "pipeline", "track")
METRICS = ("train_loss", "learning_rate")


@pytest.fixture(scope="module")
def project(tmp_path_factory, shared_folder) -> Path:
    """A project that ran once with a store, and once more, as an experiment, while its server was down."""
    folder = prepared_project(shared_folder, tmp_path_factory.mktemp("track") / "project")
    words = ("dvc", "exp", "run", "-n", "away", "-S", "warmup=8")
    output = command(folder, *words, MLFLOW_TRACKING_URI="http://127.0.0.1:9")
    assert output.count("Tracking ended for this stage: ") == 1
    assert output.count("The run or its model was not written: ") == 1
    assert len(runs(folder)) == 1
    return folder


def test_a_server_that_was_away_gets_the_whole_run(project):
    output = command(project, *TRACK)
    assert "1 written" in output
    assert "1 there" in output
    table = seen(project)
    assert sorted(run[2]["warmup"] for run in table.values()) == ["4", "8"]
    (away,) = [run for run in runs(project) if run.info.run_name == "away"]
    for metric in METRICS:
        points = reader(project).get_metric_history(away.info.run_id, metric)
        assert [point.step for point in points] == [2, 4, 6, 8, 10, 12]
    assert {"bleu", "delta_bleu", "p_randomisation"} <= set(away.data.metrics)
    (version,) = reader(project).search_model_versions(f"run_id = '{away.info.run_id}'")
    assert version.tags["engines"] == "were not compared"


def test_a_run_in_the_trash_is_made_again_by_record_alone(project):
    (away,) = [run for run in runs(project) if run.info.run_name == "away"]
    store = {"MLFLOW_TRACKING_URI": f"sqlite:///{project / 'mlflow.db'}"}
    command(project, "mlflow", "runs", "delete", "--run-id", away.info.run_id, **store)
    assert "1 in MLflow's trash" in command(project, *TRACK)
    command(project, sys.executable, "-m", "pipeline.record")  # the experiment is in the work tree
    assert len(runs(project)) == 2


def test_a_clone_that_pulled_what_it_needed_has_its_run(project, tmp_path):
    """`dvc repro --pull --allow-missing` fetches what `record` reads, and leaves out the rest of data/."""
    command(project, "dvc", "remote", "add", "--default", "team", str(tmp_path / "remote"))
    command(project, "git", "checkout", "-q", "params.yaml", "dvc.lock", "reports")
    command(project, "dvc", "push")
    command(project, "git", "add", ".dvc/config")
    command(project, "git", "commit", "-qm", "remote")
    clone = tmp_path / "clone"
    command(tmp_path, "git", "clone", "-q", str(project), str(clone))
    params_file(clone, beam_size=2)
    command(clone, "dvc", "repro", "--pull", "--allow-missing")
    assert not (clone / "data/ids").exists()
    assert [run[1] for run in seen(clone).values()] == ["FINISHED"]
