"""Trainings of one project share the cores of the machine: no core is used by two trainings."""

from __future__ import annotations

import platform
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline import locks


@pytest.fixture(autouse=True)
def waiting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> threading.Event:
    """A machine of four cores and an empty project. The event is set when a training has begun to wait for cores."""
    event = threading.Event()

    def sleep(seconds: float) -> None:
        event.set()
        threading.Event().wait(seconds / 100)

    monkeypatch.setattr(locks, "core_numbers", lambda: [0, 1, 2, 3])
    monkeypatch.setattr(locks, "time", SimpleNamespace(sleep=sleep))
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    return event


def start_training(count: int) -> tuple[threading.Thread, threading.Event]:
    """Start another training that needs `count` cores. The event is set when it gets them."""
    got_cores = threading.Event()

    def train() -> None:
        with locks.hold_cores(count):
            got_cores.set()

    thread = threading.Thread(target=train, daemon=True)
    thread.start()
    return thread, got_cores


def test_trainings_run_at_the_same_time_while_there_are_enough_cores(waiting, capsys):
    with locks.hold_cores(2):
        thread, got_cores = start_training(2)
        thread.join(60)
        assert got_cores.is_set()
        thread, got_cores = start_training(3)  # more than the two that are free
        assert waiting.wait(60)
        assert not got_cores.is_set()
    thread.join(60)
    assert got_cores.is_set()
    message = "Another training uses the cores that this one needs (3 of 4). This training waits until they are free."
    assert capsys.readouterr().out.count(message) == 1


def test_a_training_that_needs_more_cores_than_there_are_gets_all(waiting):
    with locks.hold_cores(64):
        thread, got_cores = start_training(1)
        assert waiting.wait(60)
        assert not got_cores.is_set()
    thread.join(60)
    assert got_cores.is_set()


@pytest.mark.parametrize(
    ("module", "name", "value"), [(locks, "core_numbers", [4, 5, 6, 7]), (platform, "node", "other")]
)
def test_trainings_with_other_cores_or_on_other_machines_do_not_wait(monkeypatch, module, name, value):
    with locks.hold_cores(4):
        monkeypatch.setattr(module, name, lambda: value)
        thread, got_cores = start_training(4)
        thread.join(60)
        assert got_cores.is_set()


def test_a_training_that_fails_releases_its_cores():
    with pytest.raises(ValueError, match="nan"), locks.hold_cores(4):
        raise ValueError("nan")
    with locks.hold_cores(4):
        pass


def test_the_second_of_two_equal_trainings_prints_a_message_and_waits(tmp_path, capsys):
    path = tmp_path / "lock"
    started = threading.Event()

    def train() -> None:
        started.set()
        with locks.hold_lock(path):
            pass

    thread = threading.Thread(target=train, daemon=True)
    with locks.hold_lock(path):
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()
    thread.join(60)
    assert not thread.is_alive()
    assert f"Another process runs the same training (lock {path})." in capsys.readouterr().out
