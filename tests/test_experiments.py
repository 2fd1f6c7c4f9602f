"""Sweeps, lost databases, repetitions and teams: what is known of experiments stays true however they ran."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from pathlib import Path

import pytest
from mlflow import MlflowClient
from projects import command, reader, rows, small_project
from ruamel.yaml import YAML

SWEEP = ["warmup=4,8", "seed=1,2"]


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A small project that was run, committed, and swept over by two workers."""
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


def seen(folder: Path, uri: str = "") -> dict[str, tuple]:
    """What a person sees of each scored row, by its config_key: name, status, params, metrics, files, data."""
    client, found = reader(folder, uri), {}
    for run in rows(folder, uri):
        files = {file.path for file in client.list_artifacts(run.info.run_id)} - {"model"}
        data = {(one.dataset.name, one.dataset.profile) for one in run.inputs.dataset_inputs}
        tags = {name: value for name, value in run.data.tags.items() if name.startswith(("dvc_", "env_", "signature"))}
        key = run.data.tags["config_key"]
        assert key not in found
        found[key] = (run.info.run_name, run.info.status, run.data.params, run.data.metrics, files, data, tags)
    return found


def test_two_workers_lose_no_row_and_double_none(project):
    status = command(project, "dvc", "queue", "status")
    assert status.count("Success") == 4
    found = [(run.data.params["warmup"], run.data.params["seed"], run.info.status) for run in rows(project)]
    wanted = [(warmup, seed, "FINISHED") for warmup in "48" for seed in "12"]
    assert sorted(found) == wanted  # the first has the row of the committed run, whose configuration it is
    assert all("bleu" in run.data.metrics for run in rows(project))


def test_a_sweep_over_the_training_runs_no_preprocessing_again(project):
    for name in names(project):
        log = command(project, "dvc", "queue", "logs", name)
        ran = re.findall(r"Running stage '(\w+)'", log)
        assert not {"download", "tokenise", "learn_bpe", "build_vocab", "encode"} & set(ran)


def test_seeds_are_grouped_and_each_difference_has_a_p_value(project):
    command(project, sys.executable, "-m", "pipeline.compare", *sorted(names(project)))
    record = json.loads((project / "reports/comparison.json").read_text())
    assert sorted(row["runs"] for row in record["configurations"]) == [2, 2]
    assert all({"p_bootstrap", "p_randomisation"} <= set(row) for row in record["systems"][1:])


def test_each_experiment_carries_its_difference_to_the_commit_it_was_started_from(project):
    metrics = [run.data.metrics for run in rows(project) if "DVC_EXP_NAME" in run.data.tags]
    assert len(metrics) == 3  # the fourth is what was committed, and nothing ran
    assert all({"delta_bleu", "p_bootstrap", "p_randomisation"} <= set(row) for row in metrics)
    assert all(0 <= row["p_bootstrap"] <= 1 for row in metrics)


def test_a_row_tells_its_data_machine_code_stages_and_costs(project):
    (row,) = [run for run in rows(project) if (run.data.params["warmup"], run.data.params["seed"]) == ("8", "2")]
    tags, metrics = row.data.tags, row.data.metrics
    assert {f"dvc_{name}" for name in ("download", "train", "translate", "score", "report")} <= set(tags)
    assert {"env_torch", "env_cpu", "env_devices", "signature_bleu", "git_commit", "DVC_EXP_NAME", "model"} <= set(tags)
    assert {"tokens_per_second", "gradient_norm", "learning_rate", "valid_loss", "train_loss"} <= set(metrics)
    assert "system/cpu_utilization_percentage" in metrics
    assert metrics["train_tokens"] > 0 == metrics["train_tokens_saved"]
    assert metrics["train_seconds"] > 0 == metrics["train_seconds_saved"]
    data = {one.dataset.name: json.loads(one.dataset.profile) for one in row.inputs.dataset_inputs}
    assert data["files train.src"]["lines"] == 150
    assert len(data["files test.tgt"]["sha256"]) == 64


def test_what_the_cache_saves_is_counted(project):
    command(project, "dvc", "exp", "run", "--temp", "-S", "beam_size=2")
    (row,) = [run for run in rows(project) if run.data.params["beam_size"] == "2"]
    assert row.data.metrics["train_tokens"] == 0 < row.data.metrics["train_tokens_saved"]
    assert row.data.metrics["train_seconds"] == 0 < row.data.metrics["train_seconds_saved"]
    first = next(run for run in rows(project) if run.data.tags["train_key"] == row.data.tags["train_key"])
    assert row.data.tags["model"] == first.data.tags["model"]  # one upload


def test_a_lost_database_is_rebuilt_and_a_second_time_nothing_changes(project):
    before = seen(project)
    assert len(before) == 5
    (project / "mlflow.db").rename(project / "work/lost.db")
    told = command(project, sys.executable, "-m", "pipeline.track")
    assert told.startswith("5 made")
    assert seen(project) == before
    everything = [run.to_dictionary() for run in rows(project)]
    assert command(project, sys.executable, "-m", "pipeline.track").startswith("5 there")
    assert [run.to_dictionary() for run in rows(project)] == everything


def test_a_row_in_the_trash_stays_there(project):
    (row,) = [run for run in rows(project) if run.data.params["beam_size"] == "2"]
    store = {"MLFLOW_TRACKING_URI": f"sqlite:///{project / 'mlflow.db'}"}
    command(project, "mlflow", "runs", "delete", "--run-id", row.info.run_id, **store)
    assert command(project, sys.executable, "-m", "pipeline.track").startswith("5 there")
    assert len(rows(project)) == 4
    command(project, "mlflow", "runs", "restore", "--run-id", row.info.run_id, **store)


def test_a_configuration_that_comes_back_from_the_run_cache_gets_its_row(project):
    (project / "mlflow.db").unlink()
    told = command(project, "dvc", "exp", "run", "--temp", "--name", "again", "-S", "warmup=8")
    assert re.findall(r"Running stage '(\w+)'", told) == ["register"]
    (row,) = rows(project)
    assert row.data.params["warmup"] == "8"
    assert row.info.run_name == "again"
    command(project, sys.executable, "-m", "pipeline.track")
    assert len(rows(project)) == 5


def test_a_fresh_clone_that_comes_to_the_committed_results_gets_its_whole_row(project, tmp_path):
    clone = tmp_path / "clone"
    command(tmp_path, "git", "clone", "--quiet", str(project), str(clone))
    command(clone, "git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "later")
    command(clone, "dvc", "repro")
    assert command(clone, "git", "status", "--short") == ""
    ((key, (_, _, params, _, *rest)),) = seen(clone).items()
    _, _, wanted, _, *others = seen(project)[key]
    assert (params, rest) == (wanted, others)  # files, data, and a hash of each stage
    before = rows(clone)[0].data.tags
    assert "model" in before
    (clone / "mlflow.db").unlink()
    command(clone, sys.executable, "-m", "pipeline.track")
    after = rows(clone)[0].data.tags
    assert after["git_commit"] == before["git_commit"] == command(clone, "git", "rev-parse", "HEAD").strip()
    assert command(clone, "dvc", "repro").count("Running stage") == 0


def test_a_second_clone_pulls_reruns_nothing_and_shares_the_rows(project, tmp_path, team_server):
    remote, clone = tmp_path / "remote", tmp_path / "clone"
    command(project, "dvc", "remote", "add", "--local", "--default", "team", str(remote))
    command(project, "dvc", "push", "--run-cache")
    command(tmp_path, "git", "clone", "--quiet", str(project), str(clone))
    command(clone, "dvc", "remote", "add", "--local", "--default", "team", str(remote))
    command(clone, "dvc", "pull", "--run-cache")
    assert "up to date" in command(clone, "dvc", "repro")
    assert "Running" not in command(clone, "dvc", "repro")
    team = {"MLFLOW_TRACKING_URI": team_server, "MLFLOW_EXPERIMENT_NAME": tmp_path.name}
    assert "1 made" in command(clone, sys.executable, "-m", "pipeline.track", **team)
    command(project, sys.executable, "-m", "pipeline.track", **team)
    shared = mine(team_server, tmp_path.name)
    assert len(shared) == 5  # the clone's row is one of the project's
    told = command(clone, "dvc", "exp", "run", "--temp", "-S", "beam_size=3", **team)
    assert "Running stage 'train'" not in told
    (row,) = [run for run in mine(team_server, tmp_path.name) if run.data.params["beam_size"] == "3"]
    assert row.info.artifact_uri.startswith("mlflow-artifacts:")
    assert row.data.metrics["bleu"] >= 0


def mine(uri: str, experiment: str) -> list:
    """The rows of one experiment of the team's server."""
    client = MlflowClient(uri)
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    return list(client.search_runs([found.experiment_id]))


def test_a_repetition_is_identical_but_for_what_was_tampered_with(project, tmp_path):
    clone = tmp_path / "clone"
    shutil.copytree(project, clone, ignore=shutil.ignore_patterns("work", "mlartifacts"))
    lock = YAML(typ="safe").load(clone / "dvc.lock")
    lock["stages"]["learn_bpe"]["outs"][0]["md5"] = "f" * 32
    YAML().dump(lock, clone / "dvc.lock")
    command(clone, "git", "commit", "--quiet", "--all", "--message", "tampered with")
    told = command(clone, sys.executable, "-m", "pipeline.verify", status=3)
    verdicts = dict(re.findall(r"(\S+) +\w{10} +\w{10} +(identical|within tolerance|different)", told))
    assert verdicts.pop("data/bpe.codes") == "different"
    assert set(verdicts) >= {"data/raw", "data/checkpoints", "data/model", "reports/scores.json", "reports/report.html"}
    assert set(verdicts.values()) == {"identical"}
    assert "environment: the same as recorded" in told
    assert not list((clone / "work").glob("verify-*"))


def test_what_was_edited_and_not_run_is_not_verified(project, tmp_path):
    clone = tmp_path / "clone"
    command(tmp_path, "git", "clone", "--quiet", str(project), str(clone))
    text = (clone / "params.yaml").read_text()
    (clone / "params.yaml").write_text(re.sub(r"(?m)^seed: 1", "seed: 7", text))
    command(clone, "git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qam", "edited")
    told = command(clone, sys.executable, "-m", "pipeline.verify", status=1)
    assert told == "error: HEAD has not the results of its params: run `dvc repro`, commit, and verify that\n"
