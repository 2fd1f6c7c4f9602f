"""How many machines and processes train together, and which of their failures is the cause."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from pipeline.training import devices
from pipeline.training.devices import join_environments, process_count, threads_per_process
from pipeline.training.launch import LOST, Machines, print_failure


def machines(monkeypatch, **variables: str) -> Machines | None:
    for name in ("NODES", "NODE_RANK", "RENDEZVOUS"):
        monkeypatch.setenv(name, variables.get(name, ""))
    return Machines.read_environment()


def test_machines_are_named_by_three_variables(monkeypatch):
    assert machines(monkeypatch) is machines(monkeypatch, NODES="1") is None
    asked = {"NODES": "2", "NODE_RANK": "1", "RENDEZVOUS": "first:5000"}
    assert machines(monkeypatch, **asked) == Machines(2, 1, "first", 5000)
    assert machines(monkeypatch, **asked | {"RENDEZVOUS": "first"}) == Machines(2, 1, "first", 29400)  # torchrun's


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        *(("NODES", value, "NODES=.* Set NODES to 2") for value in ("0", "two", "1:4", "-1", "²")),
        *(("NODE_RANK", value, "NODES=2 needs the number of this machine") for value in ("", "2", "-1", "first")),
        ("RENDEZVOUS", "", "NODES=2 needs RENDEZVOUS=HOST:PORT"),
        ("RENDEZVOUS", "first:99999", "must be HOST:PORT, with a port from 1 to 65535"),
    ],
)
def test_a_wrong_variable_of_machines_is_named(monkeypatch, name, value, message):
    with pytest.raises(ValueError, match=message):
        machines(monkeypatch, **{"NODES": "2", "NODE_RANK": "0", "RENDEZVOUS": "first", name: value})


def test_facts_of_several_environments_are_one_string():
    """DVC shows no lists."""
    first, second = {"cpu": "A", "threads": 2}, {"cpu": "B", "threads": 2, "more": "full"}
    assert join_environments([first]) == first
    assert join_environments([first, second]) == {"cpu": "A + B", "threads": 2, "more": "none + full"}


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5", "²"])
def test_devices_that_are_no_number_of_processes_are_refused(monkeypatch, value):
    monkeypatch.setenv("DEVICES", value)
    with pytest.raises(ValueError, match=r"DEVICES=.* is not a number of processes"):
        process_count()


def test_processes_share_the_cores_unless_threads_are_set(monkeypatch):
    monkeypatch.setenv("DEVICES", "2")
    monkeypatch.setattr(devices, "cores", lambda: 8)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads_per_process() == 3
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert threads_per_process() == 4


def failure(folder: Path, rank: int, exitcode: int, message: str = "", timestamp: int = 0) -> ProcessFailure:
    """A failure of a process. message: what the process has reported; "": it was killed before."""
    path = folder / f"{rank}.json"
    if message:
        path.write_text(json.dumps({"message": message, "timestamp": timestamp, "reported": True}))
    return ProcessFailure(local_rank=rank, pid=1000 + rank, exitcode=exitcode, error_file=str(path))


@pytest.mark.parametrize(
    ("ends", "status", "printed"),
    [
        ([(LOST, "lost another", 1), (1, "a mistake", 2)], 1, "error: a mistake\n"),
        ([(1, "the second", 2), (1, "the first", 1)], 1, "error: the first\n"),
        ([(LOST, "lost another", 1), (-signal.SIGKILL,)], 1, "error: Process 1 ended with SIGKILL. "),
        ([(-signal.SIGTERM,), (1, "a mistake", 2)], 1, "error: a mistake\n"),
        ([(LOST, "lost another machine", 1)], 1, "error: lost another machine\n"),
        ([(1,)], 1, "error: Process 0 ended with exit status 1. "),
        ([(143,), (-signal.SIGTERM,)], 143, ""),
        ([(130,)], 130, ""),
    ],
)
def test_the_cause_of_a_failure_is_printed_once(tmp_path, capsys, ends, status, printed):
    assert print_failure({rank: failure(tmp_path, rank, *end) for rank, end in enumerate(ends)}) == status
    errors = capsys.readouterr().err
    assert errors.startswith(printed)
    assert errors.count("\n") == bool(printed)
