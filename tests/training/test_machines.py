"""A training on two machines computes what one computes, ends when one is lost, and refuses one that differs."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from support.hosts import PATIENCE, Host, losses, two_hosts, why_no_hosts
from support.projects import own_corpus, params_file
from support.stages import wait_until
from support.tiny import stage

pytestmark = pytest.mark.full
STAGES = ("download", "filter", "tokenise", "learn_bpe", "build_vocab", "encode", "back_translate")
# A long warmup: at a high learning rate, training multiplies the rounding of sums by ten every few updates.
KNOBS = {"precision": "float64", "warmup": 400}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """A folder in which the stage train can run."""
    if reason := why_no_hosts():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("prepared") / "project"
    folder.mkdir()
    own_corpus(folder / "own")
    params_file(folder, **KNOBS)
    for name in STAGES:
        done = stage(name, folder)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def hosts(prepared, tmp_path):
    """The first machine and another one, each with its own copy of the data."""
    folders = tmp_path / "first", tmp_path / "second"
    for folder in folders:
        shutil.copytree(prepared, folder)
    with two_hosts(folders) as pair:
        yield pair


def set_knobs(hosts: tuple[Host, Host], **knobs) -> None:
    """Write the same params.yaml on both machines."""
    for host in hosts:
        params_file(host.folder, **KNOBS, **knobs)


def alone(folder: Path, max_steps: int) -> list[float]:
    """The losses of the training on one machine."""
    params_file(folder, **KNOBS, max_steps=max_steps)
    done = stage("train", folder, env={"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    return losses(folder)


def statuses(hosts: tuple[Host, Host], *processes: subprocess.Popen) -> list[int]:
    """The exit statuses of processes; what the machines printed is shown if the test fails."""
    ends = [process.wait(PATIENCE) for process in processes]
    print(*(host.log.read_text() for host in hosts), sep="\n---\n")
    return ends


def test_two_machines_give_the_losses_of_one_and_the_first_writes(hosts, prepared, tmp_path):
    first, second = hosts
    set_knobs(hosts, max_steps=100)
    processes = [host.train() for host in hosts]
    assert statuses(hosts, *processes) == [0, 0]
    assert json.loads((first.folder / "reports/environment.json").read_text())["devices"] == 2
    assert losses(first.folder) == pytest.approx(alone(shutil.copytree(prepared, tmp_path / "alone"), 100), rel=1e-6)
    assert not [path for path in second.folder.rglob("work/**/*") if path.is_file()]
    assert not (second.folder / "reports").exists()


def test_a_lost_machine_ends_the_training_which_resumes(hosts, prepared, tmp_path):
    first, second = hosts
    set_knobs(hosts, max_steps=400)
    process, _ = first.train(), second.train()
    wait_until(lambda: len(losses(first.folder)) > 8, PATIENCE, first.log.read_text)
    second.kill()
    assert statuses(hosts, process)[0] != 0
    assert "Run the same command again" in first.log.read_text()
    assert not first.processes()
    set_knobs(hosts, max_steps=400)
    assert statuses(hosts, *(host.train() for host in reversed(hosts))) == [0, 0]  # whichever starts first
    assert "Resuming after update" in first.log.read_text()
    assert losses(first.folder) == pytest.approx(alone(shutil.copytree(prepared, tmp_path / "alone"), 400), rel=1e-6)


def test_a_machine_with_other_data_is_refused_and_named(hosts):
    first, second = hosts
    corpus = second.folder / "data/ids/corpus.json"
    corpus.write_text(json.dumps(json.loads(corpus.read_text()) | {"more": 1}))
    ends = statuses(hosts, *(host.train() for host in hosts))
    assert 0 not in ends
    assert "data ids" in first.log.read_text()
    assert not (first.folder / "data/checkpoints").exists()
    assert not any("Traceback (most" in host.log.read_text() for host in hosts)
