"""Training as a stage: killed and started again, in several processes, and twice at the same time."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from support.projects import params_file, prepared_project, runs
from support.stages import start, trained, training_place, wait_for_state
from support.tiny import stage

from transformer.files import read_lines

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def project(tmp_path_factory, shared_folder) -> Path:
    """A small project that was run once."""
    return prepared_project(shared_folder, tmp_path_factory.mktemp("stages") / "project")


@pytest.fixture
def place(project, tmp_path) -> Path:
    """A folder in which the stage train can run."""
    return training_place(project, tmp_path / "place")


@pytest.fixture(scope="module")
def unkilled(project, tmp_path_factory) -> str:
    """The hash of the outs of a training of 160 updates that was not killed."""
    folder = training_place(project, tmp_path_factory.mktemp("unkilled") / "place", max_steps=160)
    assert stage("train", folder).returncode == 0
    return trained(folder)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_killed_training_writes_no_out_and_ends_in_the_same_bytes_as_an_unkilled_one(place, unkilled, number, status):
    params_file(place, max_steps=160)
    process = start("train", place)
    wait_for_state(place, process)
    process.send_signal(number)
    assert process.wait() == status
    assert not (place / "data/checkpoints").exists()
    assert not (place / "reports").exists()
    assert stage("train", place).returncode == 0
    assert trained(place) == unkilled
    assert len(runs(place)) == 1  # one MLflow run, continued


def test_sigterm_stops_all_processes_and_their_state_is_saved(place):
    params_file(place, max_steps=4000)
    process = start("train", place, devices=2)
    wait_for_state(place, process)
    process.send_signal(signal.SIGTERM)
    errors = process.communicate()[1]
    assert process.returncode == 143
    assert ". Its state is saved. Run the same command again to resume." in errors
    assert not (place / "data/checkpoints").exists()


def test_when_one_process_dies_the_others_stop_and_the_training_can_be_resumed(place):
    params_file(place, max_steps=8000, save_every=2)
    process = start("train", place, devices=3)
    wait_for_state(place, process)
    (victim,) = (pid for pid in processes() if environment(pid).get("LOCAL_RANK") == "1" and folder_of(pid) == place)
    os.kill(victim, signal.SIGKILL)
    errors = process.communicate(timeout=30)[1]
    assert process.returncode == 1
    assert "error: Process 1 of 3 ended first, with SIGKILL. The other processes were stopped." in errors
    assert "Traceback" not in errors
    (state,) = sorted(place.glob("work/train-*/state-*.json"))[-1:]
    params_file(place, max_steps=int(state.stem.removeprefix("state-")) + 2, save_every=2)
    done = stage("train", place)
    assert done.returncode == 0, done.stderr
    assert "Resuming after update" in done.stdout


def processes() -> list[int]:
    """The ids of all processes whose environment this one may read."""
    return [int(path.name) for path in Path("/proc").glob("[0-9]*") if os.access(path / "environ", os.R_OK)]


def environment(pid: int) -> dict[str, str]:
    """The environment that a process was started with; empty if it has ended."""
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}
    return dict(part.split("=", 1) for part in text.split("\0") if "=" in part)


def folder_of(pid: int) -> Path | None:
    """The folder that a process runs in; None if it has ended."""
    try:
        return Path(f"/proc/{pid}/cwd").resolve()
    except OSError:
        return None


def test_two_equal_trainings_started_together_give_the_outs_of_one(place, unkilled):
    params_file(place, max_steps=160)
    first, second = start("train", place), start("train", place)
    for process in (first, second):
        assert process.wait() == 0, process.stderr and process.stderr.read()
    assert trained(place) == unkilled
    assert len(runs(place)) == 1


def test_two_processes_train_the_same_model(place):
    params_file(place, precision="float64")
    assert stage("train", place).returncode == 0
    (place / "reports/training.csv").rename(place / "one.csv")
    shutil.rmtree(place / "work")
    done = stage("train", place, env={"DEVICES": "2"})
    assert done.returncode == 0, done.stderr
    for one, two in zip(read_lines(place / "one.csv"), read_lines(place / "reports/training.csv"), strict=True):
        for a, b in zip(one.split(","), two.split(","), strict=True):
            assert a == b or float(a) == pytest.approx(float(b), rel=1e-9)
