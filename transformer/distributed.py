"""Processes that train together: rank, world size, sums over all of them. One process alone pays nothing for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class World:
    """This process among all: its rank, how many there are, and the device it computes on."""

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
            dist.all_reduce(tensor)
        return tensor

    def from_leader(self, value: Any) -> Any:
        """The leader's value (plain data) on every process."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, device=self.device if self.device.type == "cuda" else None)
        return box[0]

    def gathered(self, value: Any) -> list[Any]:
        """The values (plain data) of all processes, in order of rank, on every process."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values


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


def launch(module: str, processes: str, options: Sequence[str]) -> int:
    """Run a module in several processes by torchrun; `processes` is a number or gpu, one for each GPU.

    Raises ValueError for a number that makes no sense here. Returns the exit status. SIGTERM and SIGINT are passed on
    to all of them; the status is then 128 + the signal.
    """
    if not (processes.isdigit() and int(processes)) and processes not in ("gpu", "cpu", "auto"):
        raise ValueError(f"DEVICES={processes!r} must be a number of processes, or gpu for one on each GPU")
    if processes == "gpu" and not torch.cuda.is_available():
        raise ValueError("DEVICES=gpu, but torch sees no GPU here; leave DEVICES unset, or give a number of processes")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    child = subprocess.Popen([*torchrun, "-m", module, *options])
    stop: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: (stop.append(number), child.send_signal(number)))
    status = child.wait()
    return 128 + stop[0] if stop else status
