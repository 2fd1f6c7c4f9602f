"""Experiments on a Slurm cluster of two nodes, with Slurm's own daemons on this machine."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.projects import command, prepared_project, runs
from support.servers import free_port
from support.slurm import Cluster, slurm_cluster
from support.tiny import ROOT

pytestmark = pytest.mark.full
# The first trains long enough to be killed in between; the second trains anew; the others only translate anew.
EXPERIMENTS = [
    "-S seed=2 -S max_steps=200 -S save_every=20",
    "-S warmup=8",
    "-S beam_size=2",
    "-S beam_size=3",
    "-S beam_size=5",
    "-S beam_size=6",
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with slurm_cluster() as started:
        yield started


@pytest.fixture(scope="module")
def project(cluster, shared_folder, tmp_path_factory) -> Path:
    """A small project that was run, with a list of experiments."""
    folder = prepared_project(shared_folder, tmp_path_factory.mktemp("slurm") / "project")
    shutil.copytree(ROOT / "deploy/slurm", folder / "deploy/slurm")
    (folder / "experiments.txt").write_text("".join(f"{line}\n" for line in EXPERIMENTS))
    command(folder, "git", "add", "-A")
    command(folder, "git", "commit", "-qm", "experiments")
    return folder


def experiments(folder: Path) -> list[str]:
    """The names of the experiments of a project."""
    return command(folder, "git", "for-each-ref", "--format=%(refname:lstrip=4)", "refs/exps").split()


def log_of(folder: Path, task: str) -> str:
    """What a task has printed, in all its attempts."""
    path = folder / f"slurm-{task}.out"
    return path.read_text() if path.exists() else ""


def test_six_experiments_end_each_once_though_one_is_requeued(cluster, project):
    before = len(runs(project))
    job = cluster.submit(project, "--array=1-6", "deploy/slurm/experiments.sbatch", "experiments.txt")
    first = f"{job}_1"
    cluster.wait_until(lambda: "update 60 of 200" in log_of(project, first))
    cluster.run("scontrol", "requeue", first)
    assert cluster.wait(job) == ["COMPLETED"] * 6, cluster.log()
    (resumed,) = re.findall("Resuming after update ([0-9]+)", log_of(project, first))
    assert int(resumed) >= 60
    names = experiments(project)
    assert len(names) == 6
    command(project, sys.executable, "-m", "pipeline", "track")  # also what a slow machine has not sent in time
    new = [run for run in runs(project) if run.data.tags.get("DVC_EXP_NAME") in names]
    assert (len(new), len(runs(project))) == (6, before + 6)
    assert {(run.info.status, "bleu" in run.data.metrics) for run in new} == {("FINISHED", True)}
    assert {run.data.params["beam_size"] for run in new} == {"4", "2", "3", "5", "6"}


def test_experiments_that_were_run_are_not_run_again(cluster, project):
    job = cluster.submit(project, "--array=1,6", "deploy/slurm/experiments.sbatch", "experiments.txt")
    assert cluster.wait(job) == ["COMPLETED"] * 2
    assert all("was run before" in log_of(project, f"{job}_{line}") for line in (1, 6))
    assert len(experiments(project)) == 6


def test_an_experiment_on_two_nodes_trains_on_both(cluster, project):
    place = f"--export=ALL,RENDEZVOUS=127.0.0.1:{free_port()}"  # the nodes are one machine
    words = ["dvc", "exp", "run", "--name", "both", "-S", "seed=3"]
    job = cluster.submit(project, "--nodes=2", place, "deploy/slurm/nodes.sbatch", *words)
    assert cluster.wait(job) == ["COMPLETED"], log_of(project, job) + cluster.log()
    assert json.loads((project / "reports/environment.json").read_text())["devices"] == 2
    assert "both" in experiments(project)


@pytest.mark.parametrize(
    ("variable", "words", "printed"),
    [
        ("NODES=none", ["sleep", "3600"], "error: NODES='none' is not a number of machines."),
        ("RENDEZVOUS=127.0.0.1:9", ["bash", "-c", "echo it fails; exit 3"], "it fails"),
    ],
)
def test_a_job_on_two_nodes_ends_when_either_node_fails(cluster, project, variable, words, printed):
    job = cluster.submit(project, "--nodes=2", f"--export=ALL,{variable}", "deploy/slurm/nodes.sbatch", *words)
    assert cluster.wait(job) == ["FAILED"], log_of(project, job) + cluster.log()
    assert printed in log_of(project, job)
