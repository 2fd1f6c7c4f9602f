"""Stages run one by one: a folder for the stage train, a stage in the background, and the hash of a training's outs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from support.projects import params_file
from support.tiny import ROOT

from pipeline.workflow.stage import run
from transformer.files import sha256


def training_place(project: Path, folder: Path, **changes) -> Path:
    """A folder with the ids and the vocabulary of `project`, in which the stage train can run."""
    (folder / "data").mkdir(parents=True)
    shutil.copytree(ROOT / "recipes", folder / "recipes")
    shutil.copytree(project / "data/ids", folder / "data/ids")
    (folder / "data/back").mkdir()  # no back-translation
    shutil.copy(project / "data/vocab.txt", folder / "data/vocab.txt")
    params_file(folder, **changes)
    return folder


def trained(folder: Path) -> str:
    """One hash of the outs of the stage train."""
    return sha256(folder / "data/checkpoints") + sha256(folder / "reports/training.csv")


def start(
    name: str, folder: Path, *options: str, devices: int = 1, stdout: int | None = None, path: Path = ROOT
) -> subprocess.Popen:
    """Start a stage in a folder, without waiting for its end. devices: how many processes it has.

    path: a folder that Python imports from first.
    """
    env = {**os.environ, "PYTHONPATH": f"{path}{os.pathsep}{ROOT}", "DVC_ROOT": "", "DEVICES": str(devices)}
    return subprocess.Popen(
        [sys.executable, "-m", f"pipeline.{name}", *options],
        cwd=folder,
        env=env,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )


def message_of(main: Callable[[], None], *words: object) -> str:
    """The one line with which a stage or a command ends in this process. words: of its command line."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["main", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            run(main)
    message = ended.value.code
    assert isinstance(message, str)  # Python prints it to standard error, and the exit status is 1
    assert message.startswith("error: ")
    assert "\n" not in message
    return message


def processes_in(folder: Path) -> list[int]:
    """The processes that run in a folder, by their numbers."""
    running = psutil.process_iter(["cwd", "status"])
    facts = [(each.pid, each.info["cwd"], each.info["status"]) for each in running]
    return [pid for pid, place, status in facts if place == str(folder) and status != psutil.STATUS_ZOMBIE]


def wait_for_state(folder: Path, process: subprocess.Popen) -> None:
    """Wait until the first state is on the disk."""
    while not list(folder.glob("work/train-*/state-*.json")):
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.01)


def wait_until(
    condition: Callable[[], object], seconds: float = 60, state: Callable[[], str] = str, every: float = 0.01
) -> None:
    """Wait until a condition holds; fail after so many seconds with what `state` returns. every: seconds to sleep."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, state()
        time.sleep(every)
