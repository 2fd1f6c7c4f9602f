"""Each training and translation of a queue has a GPU of its own. The GPUs are pretended."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.runs import start

from pipeline.training import devices
from pipeline.workflow import gpus

TRAINING = """
import os, sys
from pipeline.workflow import gpus
gpus.visible_gpus = lambda: os.environ.get("CUDA_VISIBLE_DEVICES", "0,1,2,3").split(",")
with gpus.hold_gpus(int(sys.argv[1])):
    print(os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine of four GPUs, and an empty project."""
    monkeypatch.setattr(gpus, "DRIVER", tmp_path)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def line(process: subprocess.Popen[str]) -> str:
    """The next line that a process prints."""
    assert process.stdout
    return process.stdout.readline().strip()


def test_each_gpu_is_used_once_and_a_killed_training_frees_its_own():
    trainings = [start(TRAINING, "1") for _ in range(4)]
    names = [line(training) for training in trainings]
    assert sorted(names) == ["0", "1", "2", "3"]
    later = start(TRAINING, "1")
    assert line(later) == "Other trainings use the GPUs that this one needs (1 of 4). It waits."
    trainings[2].send_signal(signal.SIGKILL)
    assert line(later) == names[2]
    for training in (*trainings, later):
        training.communicate()


def test_the_gpus_are_those_that_the_user_chose(monkeypatch):
    assert gpus.visible_gpus() == ["0", "1", "2", "3"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-ab02, 3")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert gpus.visible_gpus() == ["GPU-ab02", "3"]
    with gpus.hold_gpus(1):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-ab02"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-ab02, 3"


def test_jobs_that_each_call_their_gpu_0_lock_different_gpus(monkeypatch):
    """As under Slurm with cgroups, where nvidia-smi lists the GPU of the job alone."""
    for uuid in ("GPU-ab", "GPU-cd"):
        monkeypatch.setattr(gpus.subprocess, "run", lambda *_, uuid=uuid, **__: SimpleNamespace(stdout=f"{uuid}\n"))
        assert [gpus.uuid_of(name) for name in ("0", "GPU-ef", "1")] == [uuid, "GPU-ef", "1"]


def test_more_gpus_than_there_are_are_refused_before_any_lock(tmp_path):
    with pytest.raises(ValueError, match=r"DEVICES=5, but this process may use only 4 of the GPUs here\."):
        gpus.hold_gpus(5).__enter__()
    assert not (tmp_path / "work").exists()


def test_a_stage_that_translates_takes_a_free_gpu_or_waits_for_none(monkeypatch):
    with gpus.hold_gpus(3):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
        with gpus.hold_gpus(1, wait=False):
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
            with gpus.hold_gpus(1, wait=False):
                assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"


def test_a_machine_without_gpus_gets_no_lock_files(monkeypatch, tmp_path):
    monkeypatch.setattr(gpus, "DRIVER", tmp_path / "none")
    with gpus.hold_gpus(1):
        assert not (tmp_path / "work").exists()


def test_torch_starts_cuda_only_when_the_training_holds_its_gpu(monkeypatch, tmp_path):
    """torch.cuda.is_available starts CUDA, which then sees the same GPUs until the process ends."""
    seen: list[str | None] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(seen.append(os.environ.get("CUDA_VISIBLE_DEVICES"))))
    for name in ("DEVICES", "WORLD_SIZE", "RANK"):
        monkeypatch.delenv(name, raising=False)
    training: Any = SimpleNamespace(folder=tmp_path / "train", check=lambda: None)
    with devices.all_processes("pipeline.train", training):
        pass
    assert set(seen) == {"0"}


def test_a_second_training_on_the_same_cores_gets_a_remark(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (tmp_path / "work").mkdir()
    with devices.hold_cores(1):
        assert capsys.readouterr().out == ""
        with devices.hold_cores(1):
            assert capsys.readouterr().out.startswith("remark: another training uses the cores of this machine.")
