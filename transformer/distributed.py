"""Processes that train together: rank, world size, sums over all of them. One process alone pays nothing for it."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

# Its functions have the group of the moment as a default argument. Imported later, as Adam does, they would keep ours,
# and its threads: one that lets go of a tensor while Python ends aborts the process.
import torch.distributed.nn
from torch import Tensor
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch


@dataclass(frozen=True)
class World:
    """This process among all: its rank, how many there are, and the device it computes on.

    What all do together raises ConnectionError when one of them is gone.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def leads(self) -> bool:
        """Whether this is the one process that writes files and logs."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum of a tensor over all processes, in place; every process gets it."""
        if self.size > 1:
            with self._together():
                dist.all_reduce(tensor)
        return tensor

    def from_leader(self, value: Any) -> Any:
        """The leader's value (plain data) on every process."""
        if self.size == 1:
            return value
        box = [value]
        with self._together():
            dist.broadcast_object_list(box, src=0, device=self.device if self.device.type == "cuda" else None)
        return box[0]

    def gathered(self, value: Any) -> list[Any]:
        """The values (plain data) of all processes, in order of rank, on every process."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        with self._together():
            dist.all_gather_object(values, value)
        return values

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Around what all processes do together: when one of them is gone, the others only say that they stop."""
        try:
            yield
        except RuntimeError as error:
            raise ConnectionError(f"process {self.rank} of {self.size} has lost another one and stops") from error


@contextmanager
def world() -> Iterator[World]:
    """Join the processes that torchrun started (nccl on GPUs, gloo on CPUs) and leave them at the end."""
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    if size > 1:
        dist.init_process_group("nccl" if on_gpu else "gloo", rank=rank, world_size=size)
    try:
        yield World(rank, size, device)
    finally:
        if size > 1:
            dist.destroy_process_group()


def stop_signals() -> list[int]:
    """From now on SIGTERM and SIGINT end nothing: their numbers are added to the list that is returned."""
    seen: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: seen.append(number))
    return seen


def heed_signals() -> None:
    """SIGTERM and SIGINT end this process again, as before stop_signals."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def launch(module: str, processes: str, options: Sequence[str]) -> int:
    """Run a module in several processes, as torchrun does; `processes` is a number, or gpu for one on each GPU.

    Raises ValueError for a number that makes no sense here. Returns the exit status. SIGTERM and SIGINT are passed on
    to all of them; the status is then 128 + the signal. When one dies, the others are stopped and its end is told.
    """
    if not (processes.isdigit() and int(processes)) and processes != "gpu":
        raise ValueError(f"DEVICES={processes!r} must be a number of processes, or gpu for one on each GPU")
    if processes == "gpu" and not torch.cuda.is_available():
        raise ValueError("DEVICES=gpu, but torch sees no GPU here; leave DEVICES unset, or give a number of processes")
    count = torch.cuda.device_count() if processes == "gpu" else int(processes)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
    for name in logging.root.manager.loggerDict:
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # our one line says it
    here = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=count, rdzv_backend="c10d",
                        rdzv_endpoint="localhost:0", run_id=str(os.getpid()), max_restarts=0)  # fmt: skip
    try:
        elastic_launch(here, sys.executable)("-m", module, *options)
    except SignalException as stopped:
        return 128 + stopped.sigval
    except ChildFailedError as failed:
        rank, failure = failed.get_first_failure()
        end = signal.Signals(-failure.exitcode).name if failure.exitcode < 0 else f"exit status {failure.exitcode}"
        told = f"error: process {rank} of {count} ended first, with {end}; the others were stopped"
        print(f"{told}; the same command goes on from the last state saved", file=sys.stderr)
        return 1
    return 0
