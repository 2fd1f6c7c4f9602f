"""How many machines and processes train together, and which of their failures is the cause."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from pipeline.training import devices
from pipeline.training.devices import instructions, process_count, threads_per_process
from pipeline.training.launch import LOST, Machines, print_failure


@pytest.mark.parametrize(
    ("nodes", "counts"), [("1", None), ("", None), ("2", (2, 2)), ("1:4", (1, 4)), ("3:3", (3, 3))]
)
def test_nodes_is_read_as_torchrun_reads_it(monkeypatch, nodes, counts):
    monkeypatch.setenv("NODES", nodes)
    monkeypatch.setenv("RENDEZVOUS", "localhost")
    machines = Machines.read_environment()
    assert (machines and (machines.least, machines.most)) == counts


@pytest.mark.parametrize("nodes", ["0", "two", "2:1", "1:", ":2", "-1", "1:2:3", "²", "0:2"])
def test_nodes_that_are_no_numbers_of_machines_are_refused(monkeypatch, nodes):
    monkeypatch.setenv("NODES", nodes)
    with pytest.raises(ValueError, match=r"NODES=.* Set NODES to 2"):
        Machines.read_environment()


@pytest.mark.parametrize(
    ("rendezvous", "rank", "first"),
    [
        ("127.0.0.1:5000", "", True),
        ("localhost", "", True),
        ("192.0.2.7", "", False),  # RFC 5737: of no machine
        ("no-such-host.invalid", "", False),
        ("127.0.0.1", "1", False),
        ("192.0.2.7", "0", True),
    ],
)
def test_the_first_machine_is_the_one_that_rendezvous_names(monkeypatch, rendezvous, rank, first):
    for name, value in {"NODES": "2", "RENDEZVOUS": rendezvous, "NODE_RANK": rank}.items():
        monkeypatch.setenv(name, value)
    machines = Machines.read_environment()
    assert machines
    assert machines.is_first == first
    assert machines.port == (5000 if ":" in rendezvous else 29400)  # torchrun's


def test_several_machines_need_the_address_of_the_first(monkeypatch):
    monkeypatch.setenv("NODES", "2")
    monkeypatch.delenv("RENDEZVOUS", raising=False)
    with pytest.raises(ValueError, match="NODES=2 needs RENDEZVOUS=HOST:PORT"):
        Machines.read_environment()


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


def test_a_forced_level_of_instructions_is_recorded(monkeypatch):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    usual = instructions()
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41")
    assert instructions() == f"{usual}, oneDNN SSE41"


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
