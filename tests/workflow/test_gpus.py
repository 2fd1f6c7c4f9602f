"""Trainings of one project share the machine: no core and no GPU is used by two trainings.

The GPUs are pretended: `installed_gpus`, which asks NVIDIA's driver, is replaced by a list of UUIDs.
"""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.tiny import ROOT

from pipeline.training import devices
from pipeline.workflow import gpus as locks
from pipeline.workflow.stage import hold_lock

FOUR = ["GPU-aa01", "GPU-ab02", "GPU-bc03", "GPU-cd04"]
TRAINING = f"""
import os, sys
from pipeline.workflow import gpus as locks
locks.installed_gpus = lambda: {FOUR}
with locks.hold_gpus(int(sys.argv[1])):
    print(os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def waiting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> threading.Event:
    """A machine of four cores and four GPUs, and an empty project. The event is set when a training begins to wait."""
    event = threading.Event()

    def sleep(seconds: float) -> None:
        event.set()
        threading.Event().wait(seconds / 100)

    monkeypatch.setattr(locks, "core_numbers", lambda: [0, 1, 2, 3])
    monkeypatch.setattr(locks, "installed_gpus", lambda: FOUR)
    monkeypatch.setattr(locks, "time", SimpleNamespace(sleep=sleep))
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return event


class Training:
    """Another training that needs `count` cores, in a thread. got_cores: set when it gets them."""

    def __init__(self, count: int):
        self.count, self.got_cores = count, threading.Event()
        self.thread = threading.Thread(target=self.train, daemon=True)
        self.thread.start()

    def train(self) -> None:
        with locks.hold_cores(self.count):
            self.got_cores.set()

    def ended(self) -> bool:
        """Whether it ran to its end."""
        self.thread.join(60)
        return self.got_cores.is_set() and not self.thread.is_alive()


@pytest.mark.parametrize(("count", "more"), [(2, 3), (64, 1)])  # a machine with fewer cores gives all
def test_a_training_waits_for_its_cores_and_says_so_once(waiting, capsys, count, more):
    with locks.hold_cores(count):
        training = Training(more)
        assert waiting.wait(60)
        assert not training.got_cores.is_set()
    assert training.ended()
    message = f"Another training uses the cores that this one needs ({more} of 4). This training waits until they are"
    assert capsys.readouterr().out.count(message) == 1


@pytest.mark.parametrize(
    ("module", "name", "value"), [(locks, "core_numbers", [4, 5, 6, 7]), (platform, "node", "other")]
)
def test_a_training_on_other_cores_or_machines_does_not_wait(monkeypatch, module, name, value):
    with locks.hold_cores(4):
        monkeypatch.setattr(module, name, lambda: value)
        assert Training(4).ended()


def test_a_training_that_fails_releases_its_cores():
    with pytest.raises(ValueError, match="nan"), locks.hold_cores(4):
        raise ValueError("nan")
    assert Training(4).ended()


def test_the_second_of_two_equal_trainings_says_so_and_waits(tmp_path):
    code = "import pathlib, sys\nfrom pipeline.workflow.stage import hold_lock\n"
    code += "with hold_lock(pathlib.Path(sys.argv[1])): pass"
    path = tmp_path / "lock"
    with hold_lock(path):
        second = start(code, str(path))
        assert line(second).startswith(f"Another process runs the same training (lock {path}).")
        assert second.poll() is None
    second.communicate(timeout=60)
    assert second.returncode == 0


def start(code: str, *words: str, **environment: str) -> subprocess.Popen[str]:
    """Start a program with some words on its command line."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        cwd=ROOT,
        env=os.environ | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def training_on_gpus(count: int, folder: Path, **environment: str) -> subprocess.Popen[str]:
    """Another process that holds `count` GPUs until its standard input is closed."""
    return start(TRAINING, str(count), DVC_ROOT=str(folder), **environment)


def line(process: subprocess.Popen[str]) -> str:
    """The next line that a process prints."""
    assert process.stdout
    return process.stdout.readline().strip()


def test_each_gpu_is_used_once_and_a_killed_training_frees_its_own(tmp_path):
    trainings = [training_on_gpus(1, tmp_path) for _ in range(4)]
    names = [line(training) for training in trainings]
    assert sorted(names) == ["0", "1", "2", "3"]
    later = training_on_gpus(1, tmp_path)
    assert line(later).startswith("Other trainings use the GPUs that this one needs (1 of 4). This training waits")
    trainings[2].send_signal(signal.SIGKILL)
    assert line(later) == names[2]
    for training in (*trainings, later):
        training.communicate()


def test_a_training_takes_only_gpus_that_the_user_chose(tmp_path):
    pair = training_on_gpus(2, tmp_path, CUDA_VISIBLE_DEVICES="3,1,2")
    assert line(pair) == "3,1"
    chosen = training_on_gpus(1, tmp_path, CUDA_VISIBLE_DEVICES="GPU-c,GPU-bc03")  # GPU-c is number 3, which is used
    assert line(chosen) == "GPU-bc03"
    for training in (pair, chosen):
        training.communicate()


def test_more_gpus_than_there_are_are_refused_before_any_lock(tmp_path):
    with pytest.raises(ValueError, match=r"DEVICES=5, but this process may use only 4 of the GPUs here\."):
        locks.hold_gpus(5).__enter__()
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(
    ("variable", "names"),
    [
        (None, {"GPU-aa01": "0", "GPU-ab02": "1", "GPU-bc03": "2", "GPU-cd04": "3"}),
        ("", {}),
        ("-1", {}),
        ("2, 0", {"GPU-bc03": "2", "GPU-aa01": "0"}),
        ("1,9,0", {"GPU-ab02": "1"}),
        ("GPU-a", {}),
        ("GPU-ab,3", {"GPU-ab02": "GPU-ab", "GPU-cd04": "3"}),
        ("MIG-x", {"MIG-x": "MIG-x"}),
    ],
)
def test_the_visible_gpus_are_those_that_cuda_would_use(variable, names):
    assert locks.visible(FOUR, variable) == names


def test_the_variable_of_the_user_is_restored(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    for context in (locks.hold_gpus(1), locks.prefer_free_gpu()):
        with context:
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "2"
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "2,3"


def test_a_stage_that_translates_takes_a_free_gpu_or_waits_for_none():
    every = "0,1,2,3"
    with locks.hold_gpus(3), locks.show_only([every]):
        with locks.prefer_free_gpu():
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"
        with locks.hold_gpus(1), locks.show_only([every]), locks.prefer_free_gpu():
            assert os.environ["CUDA_VISIBLE_DEVICES"] == every


def test_a_machine_without_gpus_gets_no_lock_files(monkeypatch, tmp_path):
    monkeypatch.setattr(locks, "installed_gpus", list)
    with locks.hold_gpus(1), locks.prefer_free_gpu():
        assert not (tmp_path / "work").exists()


def test_torch_starts_cuda_only_when_the_training_holds_its_gpu(monkeypatch, tmp_path):
    """torch.cuda.is_available starts CUDA, which then sees the same GPUs until the process ends."""
    seen = []

    def starts_cuda() -> bool:
        seen.append(os.environ.get("CUDA_VISIBLE_DEVICES"))
        return False

    @contextmanager
    def joined():
        yield starts_cuda()

    monkeypatch.setattr(torch.cuda, "is_available", starts_cuda)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(devices, "join_processes", joined)
    for name in ("DEVICES", "WORLD_SIZE", "RANK"):
        monkeypatch.delenv(name, raising=False)
    training: Any = SimpleNamespace(folder=tmp_path / "train", check=lambda: None)
    with locks.hold_gpus(1), locks.show_only(["0", "1", "2", "3"]), devices.all_processes("pipeline.train", training):
        pass
    assert seen == ["1"]
