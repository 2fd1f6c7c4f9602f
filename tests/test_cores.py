"""Trainings of one project share the cores of the machine; none computes on those of another."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pipeline import stage


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(stage.machine, "cores", lambda: 4)
    monkeypatch.setattr(stage.time, "sleep", lambda _: threading.Event().wait(0.01))
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))


def trying(count: int) -> tuple[threading.Thread, threading.Event]:
    """Another training that wants `count` cores, and whether it has had them."""
    had = threading.Event()

    def train() -> None:
        with stage.cores(count):
            had.set()

    thread = threading.Thread(target=train, daemon=True)
    thread.start()
    return thread, had


def test_trainings_run_side_by_side_while_their_cores_do(capsys):
    with stage.cores(2):
        thread, had = trying(2)
        thread.join(60)
        assert had.is_set()
        thread, had = trying(3)  # more than the two that are left
        while "waiting for another training" not in capsys.readouterr().out:
            assert not had.is_set()
        assert not had.is_set()
    thread.join(60)
    assert had.is_set()


def test_more_cores_than_there_are_means_all_of_them():
    with stage.cores(64):
        thread, had = trying(1)
        assert not had.is_set()
    thread.join(60)
    assert had.is_set()


def test_who_fails_frees_its_cores():
    with pytest.raises(ValueError, match="nan"), stage.cores(4):
        raise ValueError("nan")
    with stage.cores(4):
        pass
