"""Trainings of one project share the cores of the machine; none computes on those of another."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline.shared import stage


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> threading.Event:
    """Four cores in an empty project, and whether a training has begun to wait for some."""
    begun = threading.Event()

    def sleep(seconds: float) -> None:
        begun.set()
        threading.Event().wait(seconds / 100)

    monkeypatch.setattr(stage.machine, "cores", lambda: 4)
    monkeypatch.setattr(stage, "time", SimpleNamespace(sleep=sleep))
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    return begun


def trying(count: int) -> tuple[threading.Thread, threading.Event]:
    """Another training that wants `count` cores, and whether it has had them."""
    had = threading.Event()

    def train() -> None:
        with stage.cores(count):
            had.set()

    thread = threading.Thread(target=train, daemon=True)
    thread.start()
    return thread, had


def test_trainings_run_side_by_side_while_their_cores_do(waits, capsys):
    with stage.cores(2):
        thread, had = trying(2)
        thread.join(60)
        assert had.is_set()
        thread, had = trying(3)  # more than the two that are left
        assert waits.wait(60)
        assert not had.is_set()
    thread.join(60)
    assert had.is_set()
    assert capsys.readouterr().out.count("waiting for another training") == 1


def test_more_cores_than_there_are_means_all_of_them(waits):
    with stage.cores(64):
        thread, had = trying(1)
        assert waits.wait(60)
        assert not had.is_set()
    thread.join(60)
    assert had.is_set()


def test_who_fails_frees_its_cores():
    with pytest.raises(ValueError, match="nan"), stage.cores(4):
        raise ValueError("nan")
    with stage.cores(4):
        pass
