"""Searches over real trainings: the winner is better than the start, and a killed search ends as one that was not."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import optuna
import pytest
from ruamel.yaml import YAML
from support.projects import PATHS, command, commit_all, copied_project, own_corpus, params_file, reader, runs
from support.tiny import ROOT

pytestmark = pytest.mark.full
TRIALS = [sys.executable, "-m", "pipeline", "search", "--seeds", "1", "--finalists", "1"]


def finals(project: Path) -> list[dict]:
    """The rows of the finals of the search in a project."""
    return json.loads((project / "reports/search.json").read_text())["finals"]


def experiments(project: Path) -> set[str]:
    """The names of the experiments of a project."""
    return set(re.findall(r"\[(\S+)\]", command(project, "dvc", "exp", "list")))


def trials(project: Path) -> list[tuple]:
    """The trials in the database of the search in a project: number, knobs, scores at each rung, end."""
    (database,) = project.glob("work/search-*/trials.db")
    study = optuna.load_study(storage=f"sqlite:///{database}", study_name=database.parent.name)
    return [(one.number, one.params, one.intermediate_values, one.state.name) for one in study.trials]


@pytest.fixture(scope="module")
def toy(tmp_path_factory) -> Path:
    """The toy corpus with a small model, 150 updates and a bad warmup, in which a search has run."""
    project = tmp_path_factory.mktemp("toy") / "project"
    copied_project(project)
    yaml = YAML()
    values = yaml.load(ROOT / "recipes/toy.yaml")
    values.update({"d_model": 64, "d_ff": 256, "bpe_merges": 500, "max_steps": 150, "warmup": 4000})
    yaml.dump(values, project / "params.yaml")
    commit_all(project)
    output = command(project, *TRIALS, "--trials", "8", "warmup=20..4000")
    (project / "work/output.txt").write_text(output)
    return project


def test_eight_short_trials_from_a_bad_warmup_end_at_a_better_bleu(toy):
    start, winner = finals(toy)
    assert winner["valid_bleu_mean"] > start["valid_bleu_mean"] + 1
    assert winner["warmup"] < start["warmup"] == 4000
    assert winner["p_randomisation"] < 0.05
    assert (start["test_bleu_mean"], winner["test_bleu_mean"] > 0) == (None, True)


def test_each_trial_has_one_run_with_all_updates_once_killed_where_it_was_pruned(toy):
    states = {trial[1]["warmup"]: trial[3] for trial in trials(toy)}
    assert sorted(states.values()).count("PRUNED") == 7
    found = {int(run.data.params["warmup"]): run for run in runs(toy) if run.data.params["seed"] == "1"}
    assert len(found) == 8
    assert len(runs(toy)) == 10  # the trials, and the finals with another seed
    client = reader(toy)
    for warmup, run in found.items():
        assert run.data.params["max_steps"] == "150"
        assert run.info.status == ("KILLED" if states.get(warmup) == "PRUNED" else "FINISHED")
        steps = [point.step for point in client.get_metric_history(run.info.run_id, "train_loss")]
        rungs = next((list(trial[2]) for trial in trials(toy) if trial[1]["warmup"] == warmup), [150])
        assert steps == list(range(10, max(rungs) + 1, 10))


def test_only_finished_trainings_are_experiments_and_the_printed_command_applies_the_winner(toy):
    (complete,) = [trial for trial in trials(toy) if trial[3] == "COMPLETE"]
    name = finals(toy)[1]["name"]
    assert name.endswith(f"-{complete[0]:02d}")
    assert experiments(toy) == {name, f"{name}-seed2", f"{name[:-3]}-start-seed2"}
    (line,) = re.findall(r"^Take it over:  (.*)$", (toy / "work/output.txt").read_text(), re.MULTILINE)
    command(toy, *line.split())
    values = YAML(typ="safe").load(toy / "params.yaml")
    assert (values["warmup"], values["max_steps"]) == (complete[1]["warmup"], 150)
    assert json.loads((toy / "reports/scores.json").read_text())["valid_bleu"] > 1


SMALL_SEARCH = [*TRIALS, "--trials", "2", "warmup=2..40", "dropout=0.0..0.3"]


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    """A small project that is committed and not run."""
    project = tmp_path_factory.mktemp("small") / "project"
    copied_project(project)
    own_corpus(project / "own")
    params_file(project, max_steps=24)
    commit_all(project)
    return project


def work_tree(project: Path) -> tuple[str, ...]:
    """The branch, the stashes, what was edited and params.yaml of a project."""
    asked = (("symbolic-ref", "HEAD"), ("stash", "list"), ("status", "--porcelain"), ("diff", "HEAD"))
    return *(command(project, "git", *words) for words in asked), (project / "params.yaml").read_text()


def test_a_search_that_is_stopped_at_several_moments_ends_as_one_that_was_not_and_edits_nothing(small, tmp_path):
    """It is stopped in the first and second trial and in the finals. While it runs, params.yaml is edited."""
    params_file(small, max_steps=24, label_smoothing=0.05)  # not committed
    whole, killed = shutil.copytree(small, tmp_path / "whole"), shutil.copytree(small, tmp_path / "killed")
    command(whole, *SMALL_SEARCH)
    before = work_tree(killed)
    for count, how in ((1, signal.SIGTERM), (2, signal.SIGKILL), (3, signal.SIGINT)):
        process = started(killed)
        wait_for_trainings(killed, count, process)
        if count == 1:
            params_file(killed, max_steps=24, d_ff=48)
            wait_for_trainings(killed, 2, process)
        process.send_signal(how)
        assert process.wait() in (128 + how, -how)
        if count == 1:
            params_file(killed, max_steps=24, label_smoothing=0.05)
        assert work_tree(killed) == before
    command(killed, *SMALL_SEARCH, "--jobs", "2")
    assert work_tree(killed) == before
    assert trials(killed) == trials(whole)
    assert finals(killed) == finals(whole)
    assert experiments(killed) == experiments(whole)
    ends = [
        sorted((run.data.params["warmup"], run.data.params["dropout"], run.info.status) for run in runs(project))
        for project in (killed, whole)
    ]
    assert ends[0] == ends[1]


def started(project: Path) -> subprocess.Popen:
    """The search, started in the background."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DVC_", "MLFLOW_"))}
    env = {**kept, "PATH": PATHS, "DVC_NO_ANALYTICS": "1", "MLFLOW_DISABLE_TELEMETRY": "true"}
    return subprocess.Popen(SMALL_SEARCH, cwd=project, env=env, stdout=subprocess.DEVNULL)


def wait_for_trainings(project: Path, count: int, process: subprocess.Popen) -> None:
    """Wait until so many trainings have saved a state."""
    while len({path.parent for path in project.glob("work/train-*/state-*.json")}) < count:
        assert process.poll() is None, "the search ended before it could be killed"
        time.sleep(0.1)
