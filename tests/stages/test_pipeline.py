"""The pipeline from a user's side: dvc repro, clones, experiments, wrong overrides, on a small corpus of own files."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient
from ruamel.yaml import YAML
from support.projects import SPLITS, command, environment, finished_project, params_file, reader, runs, seen
from support.stages import wait_for_state


@pytest.fixture(scope="module")
def project(tmp_path_factory, shared_folder) -> Path:
    """A small project that was run once, in a folder with a space in its name."""
    folder = tmp_path_factory.mktemp("project") / "clone with space"
    return shutil.copytree(finished_project(shared_folder), folder)


def test_a_second_repro_runs_nothing(project):
    assert "up to date" in command(project, "dvc", "repro")
    assert command(project, "git", "status", "--short") == ""


def test_scores_and_signatures_have_the_documented_names(project):
    scores = json.loads((project / "reports/scores.json").read_text())
    names = {"valid_bleu", "bleu", "bleu_test", "chrf", "ter", "bleu_lc_tok", "exact_match", "sentences"}
    assert set(scores) == names
    assert scores["sentences"] == SPLITS["test"]
    signatures = json.loads((project / "reports/signatures.json").read_text())
    assert "tok:13a" in signatures["bleu"]
    assert "case:mixed" in signatures["bleu"]
    assert "tok:none" in signatures["bleu_lc_tok"]


def test_the_run_has_params_curve_scores_and_files(project):
    (run,) = [run for run in runs(project) if run.data.params["beam_size"] == "4" and run.data.params["warmup"] == "4"]
    assert run.info.status == "FINISHED"
    assert set(YAML(typ="safe").load(project / "params.yaml")) == set(run.data.params)
    scores = json.loads((project / "reports/scores.json").read_text())
    assert run.data.metrics["bleu"] == scores["bleu"]
    client = reader(project)
    assert [m.step for m in client.get_metric_history(run.info.run_id, "train_loss")] == [2, 4, 6, 8, 10, 12]
    files = {"translations.csv", "as_people_type.csv", "report.html", "attention.svg", "samples.csv", "valid.hyp"}
    assert {item.path for item in client.list_artifacts(run.info.run_id)} == files


def test_an_edit_during_a_training_of_two_processes_is_refused(project, tmp_path):
    """The old weights would stand in dvc.lock beside the new code."""
    folder = shutil.copytree(project, tmp_path / "project")
    shutil.rmtree(folder / "work")
    params_file(folder, max_steps=120)
    lock, code = (folder / "dvc.lock").read_bytes(), folder / "transformer/training/config.py"
    words, env = ["dvc", "repro", "-s", "train"], environment(DEVICES="2")
    process = subprocess.Popen(words, cwd=folder, env=env, stderr=subprocess.PIPE, text=True)
    wait_for_state(folder, process)
    code.write_text(code.read_text() + "# an edit\n")
    errors = process.communicate()[1]
    assert process.returncode != 0
    assert "error: transformer/training changed while stage train ran." in errors
    assert (folder / "dvc.lock").read_bytes() == lock


@pytest.mark.full
def test_a_clone_that_repeats_the_results_gets_the_same_run(project, tmp_path):
    clone = tmp_path / "clone"
    command(tmp_path, "git", "clone", "--quiet", str(project), str(clone))
    command(clone, "git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "later")
    command(clone, "dvc", "repro")
    assert command(clone, "git", "status", "--short") == ""
    ((key, (_, _, params, _, *rest)),) = seen(clone).items()
    _, _, project_params, _, *project_rest = seen(project)[key]
    assert (params, rest) == (project_params, project_rest)  # files, data, and a hash of each stage
    before = runs(clone)[0].data.tags
    (clone / "mlflow.db").unlink()
    command(clone, sys.executable, "-m", "pipeline", "track")
    after = runs(clone)[0].data.tags
    assert after["recorded_at"] == before["recorded_at"] == command(clone, "git", "rev-parse", "HEAD").strip()
    assert command(clone, "dvc", "repro").count("Running stage") == 0


@pytest.mark.full
def test_a_clone_that_pulls_runs_record_alone_on_a_team_server(project, tmp_path, team_server):
    remote, clone = tmp_path / "remote", tmp_path / "clone"
    command(project, "dvc", "remote", "add", "--local", "--default", "team", str(remote))
    command(project, "dvc", "push", "--run-cache")
    command(tmp_path, "git", "clone", "--quiet", str(project), str(clone))
    command(clone, "dvc", "remote", "add", "--local", "--default", "team", str(remote))
    command(clone, "dvc", "pull", "--run-cache")
    team = {"MLFLOW_TRACKING_URI": team_server, "MLFLOW_EXPERIMENT_NAME": tmp_path.name}
    assert re.findall(r"Running stage '(\w+)'", command(clone, "dvc", "repro", **team)) == ["record"]
    command(project, sys.executable, "-m", "pipeline", "track", **team)
    shared = server_runs(team_server, tmp_path.name)
    assert len(shared) == len(runs(project))  # the clone's run is one of the project's
    output = command(clone, "dvc", "exp", "run", "--temp", "-S", "beam_size=3", **team)
    assert "Running stage 'train'" not in output
    (run,) = [run for run in server_runs(team_server, tmp_path.name) if run.data.params["beam_size"] == "3"]
    assert run.info.artifact_uri.startswith("mlflow-artifacts:")
    assert run.data.metrics["bleu"] >= 0


def server_runs(uri: str, experiment: str) -> list:
    """The runs of one MLflow experiment on the server with the address `uri`."""
    client = MlflowClient(uri)
    team = client.get_experiment_by_name(experiment)
    assert team is not None
    return list(client.search_runs([team.experiment_id]))


def test_the_remedy_for_a_wrong_override_works(project):
    before = (project / "params.yaml").read_bytes()
    output = command(project, "dvc", "exp", "run", "-S", "warmup=abc", status=255)
    message = "warmup='abc' must be a valid integer. Correct it, or run `git checkout HEAD -- params.yaml`"
    assert message in output
    assert (project / "params.yaml").read_bytes() != before
    command(project, "git", "checkout", "params.yaml")
    assert (project / "params.yaml").read_bytes() == before
