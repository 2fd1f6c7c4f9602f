"""Processes that train together: their ranks, and sums and values exchanged between them.

A single process exchanges nothing and needs no network.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

# Imported before init_process_group: the functions of this module take the current process group as a default argument.
# Imported later, as Adam does, they would keep our group and its threads alive after destroy_process_group, and a
# thread that frees a tensor while Python exits aborts the process.
import torch.distributed.nn
from torch import Tensor

LOST = "lost the connection to another process"


class Stopped(Exception):
    """Raised in all processes when one of them requests a stop."""


@dataclass(frozen=True)
class World:
    """One of the processes that train together.

    rank: its number. size: how many processes there are. device: the device that it computes on. The methods are
    collective: all processes call them, and they raise ConnectionError when another process has ended.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def is_leader(self) -> bool:
        """Whether this is the process that writes files and logs: the one of rank 0."""
        return self.rank == 0

    @contextmanager
    def exchange(self) -> Iterator[None]:
        """Surround code in which torch exchanges tensors by itself. Raises ConnectionError as the other methods do."""
        try:
            yield
        except RuntimeError as error:
            if not isinstance(error, dist.DistError) and "gloo" not in str(error):
                raise
            with self._collective():
                raise

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum of a tensor over all processes, in place, on every process."""
        if self.size > 1:
            with self._collective():
                dist.all_reduce(tensor)
        return tensor

    def start_sum(self, tensor: Tensor) -> Callable[[], None]:
        """Start to sum a tensor over all processes, in place. Returns the function that waits for the sum."""
        with self._collective():
            work: Any = dist.all_reduce(tensor, async_op=True)

        def wait() -> None:
            with self._collective():
                work.wait()

        return wait

    def from_leader(self, value: Any) -> Any:
        """The leader's value (plain data) on every process."""
        if self.size == 1:
            return value
        box = [value]
        with self._collective():
            dist.broadcast_object_list(box, src=0, device=self.device if self.device.type == "cuda" else None)
        return box[0]

    def wait(self) -> None:
        """Wait until all processes call this."""
        self.sum(torch.zeros((), device=self.device))

    def gather(self, value: Any) -> list[Any]:
        """The values (plain data) of all processes, in order of rank, on every process."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        with self._collective():
            dist.all_gather_object(values, value)
        return values

    @contextmanager
    def _collective(self) -> Iterator[None]:
        """Surround a collective operation. Raises ConnectionError in place of torch's error when it fails."""
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise ConnectionError(
                f"Process {self.rank} of {self.size} {LOST}, or waited for it in vain ({first_line(error)}). All "
                "processes stop. Run the same command again. A training resumes from its last saved state, if it has "
                "one."
            ) from error


def first_line(error: Exception) -> str:
    """The first line of an error of torch, without the place in its source."""
    line = next(iter(str(error).split("\n")), "")
    return line.rpartition("] ")[2].strip().rstrip(".")


@contextmanager
def join_processes() -> Iterator[World]:
    """Join the processes that torchrun started (nccl on GPUs, gloo on CPUs); leave them when the block ends."""
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
            gc.collect()  # shards of weights are in cycles of references, and keep the group and its threads
            dist.destroy_process_group()
