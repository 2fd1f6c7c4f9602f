"""Training as a stage: killed and started again, in several processes, and twice at the same time."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from support.projects import params_file, runs
from support.stages import processes_in, start, trained, training_place, wait_for_state, wait_until
from support.tiny import stage

from pipeline.training.launch import LAUNCHER

pytestmark = pytest.mark.full
PAIR = {"max_steps": 160, "save_every": 2, "best_by": "bleu", "device_tokens": 64}


@pytest.fixture(scope="module")
def unkilled(project, tmp_path_factory) -> str:
    """The hash of the outs of a training of 160 updates that was not killed."""
    folder = training_place(project, tmp_path_factory.mktemp("unkilled") / "place", max_steps=160)
    assert stage("train", folder).returncode == 0
    return trained(folder)


@pytest.fixture(scope="module")
def unkilled_pair(project, tmp_path_factory) -> str:
    """The hash of the outs of a training in two processes that was not killed."""
    folder = training_place(project, tmp_path_factory.mktemp("unkilled_pair") / "place", **PAIR)
    assert stage("train", folder, env={"DEVICES": "2"}).returncode == 0
    return trained(folder)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_killed_training_ends_in_the_bytes_of_an_unkilled_one(place, unkilled, number, status):
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


def test_kills_of_launcher_and_ranks_leave_nothing_behind(place, unkilled_pair):
    """Each kill hits the launcher, or one of its two processes, at a random update of the training or before it."""
    params_file(place, **PAIR)
    chance = random.Random(7)
    for number in range(12):
        process = start("train", place, devices=2, stdout=subprocess.PIPE)
        wait_for_step(place, process, chance.randrange(1, 5) * (number % 5 > 0))
        ranks = launched_by(process.pid)
        victim = [process.pid, *ranks][number % 3] if len(ranks) == 2 else process.pid
        os.kill(victim, chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
        output, errors = process.communicate(timeout=60)
        assert process.returncode not in (0, None)
        assert "Traceback" not in errors
        assert "waits" not in output, "the start after a kill waited for a lock"
        wait_until(lambda: not processes_in(place))
    done = stage("train", place, env={"DEVICES": "2"})
    assert done.returncode == 0, done.stderr
    assert "waits" not in done.stdout
    assert len(list(place.glob("work/train-*"))) == 1
    assert trained(place) == unkilled_pair
    assert len(runs(place)) == 1


@pytest.mark.parametrize("victim", ["launcher", "rank"])
def test_sigterm_to_any_process_saves_the_state_and_is_no_error(place, victim):
    params_file(place, max_steps=4000, save_every=2)
    process = start("train", place, devices=2)
    wait_for_state(place, process)
    os.kill(process.pid if victim == "launcher" else launched_by(process.pid)[1], signal.SIGTERM)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 143
    assert ". Its state is saved. Run the same command again to resume." in errors
    assert "error:" not in errors
    assert not (place / "data/checkpoints").exists()


def test_when_one_process_dies_the_others_stop_and_it_is_named(place):
    params_file(place, max_steps=8000, save_every=2)
    process = start("train", place, devices=3)
    wait_for_state(place, process)
    os.kill(launched_by(process.pid)[1], signal.SIGKILL)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert "error: Process 1 ended with SIGKILL. The other processes were stopped." in errors
    assert "Traceback" not in errors


def test_a_training_that_waits_for_a_lock_obeys_signals(place):
    params_file(place, max_steps=4000)
    first = start("train", place)
    wait_for_state(place, first)
    for devices, number in ((1, signal.SIGTERM), (2, signal.SIGINT)):
        waiting = start("train", place, devices=devices, stdout=subprocess.PIPE)
        assert "Another process runs the same training" in str(waiting.stdout and waiting.stdout.readline())
        assert not launched_by(waiting.pid)
        waiting.send_signal(number)
        errors = waiting.communicate(timeout=20)[1]
        assert waiting.returncode in (-number, 130)
        assert "Traceback" not in errors
    first.send_signal(signal.SIGTERM)
    first.communicate()
    assert first.returncode == 143


@pytest.mark.parametrize("devices", ["1", "2"])
def test_a_mistake_is_printed_once_by_any_number_of_processes(place, devices):
    params_file(place, device_tokens=21, max_length=20, lr_factor=1e30)
    done = stage("train", place, env={"DEVICES": devices})
    assert done.returncode == 1
    assert done.stderr.count("error: ") == 1
    assert "is not finite" in done.stderr
    assert "resumes from" not in done.stderr


def wait_for_step(folder: Path, process: subprocess.Popen, further: int) -> None:
    """Wait until the training has saved `further` states more than it has now, or has ended."""
    before = newest_state(folder)
    wait_until(lambda: process.poll() is not None or newest_state(folder) >= before + 2 * further)


def newest_state(folder: Path) -> int:
    """The step of the newest state of the training in a folder; 0 if there is none."""
    names = [path.stem for path in folder.glob("work/train-*/state-*.json")]
    return max((int(name.removeprefix("state-")) for name in names), default=0)


def launched_by(launcher: int) -> list[int]:
    """The processes of a training that were launched by another process, by rank."""
    environments = {process.pid: process.info["environ"] or {} for process in psutil.process_iter(["environ"])}
    ranks = [pid for pid, environment in environments.items() if environment.get(LAUNCHER) == str(launcher)]
    return sorted(ranks, key=lambda pid: environments[pid].get("RANK", ""))
