"""Searches over real trainings: the winner is better than the start, and a killed search goes on."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import optuna
import pytest
from ruamel.yaml import YAML
from support.projects import command, commit_all, copied_project, environment, own_corpus, params_file, runs
from support.tiny import ROOT

pytestmark = pytest.mark.full
SEARCH = [sys.executable, "-m", "pipeline", "search", "--seeds", "1", "--finalists", "1"]


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
    return [(trial.number, trial.params, trial.intermediate_values, trial.state.name) for trial in study.trials]


def test_short_trials_from_a_bad_warmup_end_at_a_better_bleu(tmp_path):
    """Only finished trainings are experiments with a run, and the printed command applies the winner."""
    project = tmp_path / "project"
    copied_project(project)
    yaml = YAML()
    values = yaml.load(ROOT / "recipes/toy.yaml")
    values.update({"d_model": 64, "d_ff": 256, "bpe_merges": 500, "max_steps": 150, "warmup": 4000})
    yaml.dump(values, project / "params.yaml")
    commit_all(project)
    output = command(project, *SEARCH, "--trials", "6", "warmup=20..4000")
    start, winner = finals(project)
    assert winner["valid_bleu_mean"] > start["valid_bleu_mean"] + 1
    assert winner["warmup"] < start["warmup"] == 4000
    assert (start["test_bleu_mean"], winner["test_bleu_mean"] > 0) == (None, True)
    complete = [trial for trial in trials(project) if trial[3] == "COMPLETE"]
    assert 0 < len(complete) < 6 == len(trials(project))
    assert len(experiments(project)) == len(runs(project)) == len(complete) + 2
    assert {run.info.status for run in runs(project)} == {"FINISHED"}
    (line,) = re.findall(r"^Take it over:  (.*)$", output, re.MULTILINE)
    command(project, *line.split())
    values = YAML(typ="safe").load(project / "params.yaml")
    assert (values["warmup"], values["max_steps"]) == (winner["warmup"], 150)
    assert json.loads((project / "reports/scores.json").read_text())["valid_bleu"] > 1


SMALL_SEARCH = [*SEARCH, "--trials", "2", "warmup=2..40", "dropout=0.0..0.3"]


def test_a_search_stopped_at_several_moments_goes_on(tmp_path):
    """It is stopped in both trials and in the finals, edits nothing, and does not see the edits made meanwhile."""
    project = tmp_path / "project"
    copied_project(project)
    own_corpus(project / "own")
    params_file(project, max_steps=24)
    commit_all(project)
    for count, how in ((1, signal.SIGTERM), (2, signal.SIGKILL), (3, signal.SIGINT)):
        process = subprocess.Popen(SMALL_SEARCH, cwd=project, env=environment(), stdout=subprocess.DEVNULL)
        wait_for_trainings(project, count, process)
        params_file(project, max_steps=24, d_ff=48)
        process.send_signal(how)
        assert process.wait() in (128 + how, -how)
        command(project, "git", "checkout", "params.yaml")
    command(project, *SMALL_SEARCH)
    assert command(project, "git", "status", "--porcelain") == ""
    ends = [end for *_, end in trials(project)]
    assert len(ends) - ends.count("FAIL") == 2
    assert len(finals(project)) == 2
    assert len(runs(project)) == len(experiments(project)) == ends.count("COMPLETE") + 2
    assert {run.data.params["d_ff"] for run in runs(project)} == {"32"}


def wait_for_trainings(project: Path, count: int, process: subprocess.Popen) -> None:
    """Wait until so many trainings have saved a state."""
    while len({path.parent for path in project.glob("work/train-*/state-*.json")}) < count:
        assert process.poll() is None, "the search ended before it could be killed"
        time.sleep(0.1)
