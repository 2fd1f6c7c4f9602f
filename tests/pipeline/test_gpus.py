"""Trainings of one project share the GPUs of the machine: no GPU is used by two trainings.

The GPUs are pretended: `installed`, which asks NVIDIA's driver, is replaced by a list of UUIDs.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.runs import start

from pipeline import gpus
from pipeline.training import devices

FOUR = ["GPU-aa01", "GPU-ab02", "GPU-bc03", "GPU-cd04"]
TRAINING = f"""
import os, sys
from pipeline import gpus
gpus.installed = lambda: {FOUR}
with gpus.hold_gpus(int(sys.argv[1])):
    print(os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine of four GPUs, all visible, and an empty project."""
    monkeypatch.setattr(gpus, "installed", lambda: FOUR)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def training(count: int, folder: Path, **environment: str) -> subprocess.Popen[str]:
    """Another process that holds `count` GPUs until its standard input is closed."""
    return start(TRAINING, str(count), DVC_ROOT=str(folder), **environment)


def line(process: subprocess.Popen[str]) -> str:
    """The next line that a process prints."""
    assert process.stdout
    return process.stdout.readline().strip()


def test_eight_workers_on_four_gpus_use_each_gpu_once_and_a_killed_one_gives_its_gpu_back(machine, tmp_path):
    first = [training(1, tmp_path) for _ in range(4)]
    names = [line(one) for one in first]
    assert sorted(names) == ["0", "1", "2", "3"]
    waiting = training(1, tmp_path)
    assert line(waiting).startswith("Other trainings use the GPUs that this one needs (1 of 4). This training waits")
    first[2].send_signal(signal.SIGKILL)
    assert line(waiting) == names[2]
    for one in [*first, waiting]:
        one.communicate()


def test_a_training_takes_as_many_gpus_as_it_has_processes_and_only_those_that_the_user_chose(machine, tmp_path):
    pair = training(2, tmp_path, CUDA_VISIBLE_DEVICES="3,1,2")
    assert line(pair) == "3,1"
    chosen = training(1, tmp_path, CUDA_VISIBLE_DEVICES="GPU-c,GPU-bc03")  # GPU-c is number 3, which is held
    assert line(chosen) == "GPU-bc03"
    single = training(1, tmp_path)
    assert line(single) == "0"
    everything = training(4, tmp_path)
    assert "(4 of 4)" in line(everything)
    for one in (pair, chosen, single):
        one.communicate()
    assert line(everything) == "0,1,2,3"
    everything.communicate()


def test_more_gpus_than_there_are_is_refused_before_anything_is_held(machine, tmp_path):
    with pytest.raises(ValueError, match=r"DEVICES=5, but this process may use only 4 of the GPUs here\."):
        gpus.hold_gpus(5).__enter__()
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
    assert gpus.visible(FOUR, variable) == names


@given(st.lists(st.integers(0, 7), unique=True), st.integers(0, 8))
def test_any_choice_by_number_shows_the_gpus_up_to_the_first_that_does_not_exist(numbers, count):
    uuids = [f"GPU-{number}x" for number in range(count)]
    known = numbers[: next((place for place, number in enumerate(numbers) if number >= count), len(numbers))]
    found = gpus.visible(uuids, ",".join(map(str, numbers)))
    assert found == {uuids[number]: str(number) for number in known}


def test_the_variable_of_the_user_is_restored(machine, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    for held in (gpus.hold_gpus(1), gpus.prefer_free_gpu()):
        with held:
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "2"
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "2,3"


def test_a_stage_that_translates_takes_a_free_gpu_and_waits_for_none(machine):
    every = "0,1,2,3"
    with gpus.hold_gpus(3), gpus.only([every]):
        with gpus.prefer_free_gpu():
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"
        with gpus.hold_gpus(1), gpus.only([every]), gpus.prefer_free_gpu():
            assert os.environ["CUDA_VISIBLE_DEVICES"] == every


def test_a_machine_without_gpus_gets_no_lock_files(monkeypatch, tmp_path):
    monkeypatch.setattr(gpus, "installed", list)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    with gpus.hold_gpus(1), gpus.prefer_free_gpu():
        assert not (tmp_path / "work").exists()


def test_torch_starts_cuda_only_when_the_training_holds_its_gpu(machine, monkeypatch, tmp_path):
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
    training = SimpleNamespace(folder=tmp_path / "train", check=lambda: None)
    with gpus.hold_gpus(1), gpus.only(["0", "1", "2", "3"]), devices.all_processes("pipeline.train", training):
        pass
    assert seen == ["1"]
