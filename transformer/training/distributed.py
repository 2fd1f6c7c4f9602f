"""Processes that train together: rank, world size, sums over all of them. One process alone pays nothing for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

# Its functions have the group of the moment as a default argument. Imported later, as Adam does, they would keep ours,
# and its threads: one that lets go of a tensor while Python ends aborts the process.
import torch.distributed.nn
from torch import Tensor


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
