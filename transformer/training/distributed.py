"""Processes that train together: their ranks, and sums, values and tensors exchanged between them.

What passes between processes is tensors and JSON, never a pickle. A single process exchanges nothing and needs no
network.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

# Imported before init_process_group: the functions of this module take the current process group as a default argument.
# Imported later, as Adam does, they would keep our group and its threads alive after destroy_process_group, and a
# thread that frees a tensor while Python exits aborts the process.
import torch.distributed.nn
from torch import Tensor
from torch.distributed.distributed_c10d import _set_pg_timeout

LONGEST_WAIT = timedelta(days=7)  # on CPUs: translations may take hours, while torch waits half an hour
NOT_REACHED = "could not connect to the other processes"
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
        """The leader's value on every process. value: what JSON can hold; a tuple becomes a list."""
        if self.size == 1:
            return value
        data = encoded(value) if self.is_leader else torch.empty(0, dtype=torch.uint8)
        size = self._broadcast(torch.tensor(data.numel()))
        return decoded(self._broadcast(data if self.is_leader else torch.empty(int(size), dtype=torch.uint8)))

    def tensors_from_leader(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The leader's tensors, by name, on every process, bit for bit and on the CPU. Other processes give none."""
        if self.size == 1:
            return tensors
        kinds = [[name, str(tensor.dtype), list(tensor.shape)] for name, tensor in tensors.items()]
        received = {}
        for name, dtype, shape in self.from_leader(kinds):
            kind = getattr(torch, dtype.removeprefix("torch."))
            tensor = tensors[name].contiguous() if self.is_leader else torch.empty(shape, dtype=kind)
            # As bytes: gloo does not know each type of number.
            data = self._broadcast(tensor.flatten().view(torch.uint8))
            received[name] = data.view(kind).view(shape)
        return received

    def _broadcast(self, tensor: Tensor) -> Tensor:
        """The leader's tensor on every process, on the CPU. Others give one of the same type and shape."""
        on_device = tensor.to(self.device)
        if tensor.numel():
            with self._collective():
                dist.broadcast(on_device, src=0)
        return on_device.cpu()

    def wait(self) -> None:
        """Wait until all processes call this."""
        self.sum(torch.zeros((), device=self.device))

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, in order of rank, on every process. value: see `from_leader`."""
        if self.size == 1:
            return [value]
        data = encoded(value)
        sizes = self._all_gather(torch.tensor([data.numel()]))
        longest = max(map(int, sizes))
        padded = torch.nn.functional.pad(data, (0, longest - data.numel()))
        return [decoded(part[: int(size)]) for part, size in zip(self._all_gather(padded), sizes, strict=True)]

    def _all_gather(self, tensor: Tensor) -> list[Tensor]:
        """The tensors of all processes, all of the same shape, in order of rank, on the CPU."""
        on_device = tensor.to(self.device)
        parts = [torch.empty_like(on_device) for _ in range(self.size)]
        with self._collective():
            dist.all_gather(parts, on_device)
        return [part.cpu() for part in parts]

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


def encoded(value: Any) -> Tensor:
    """A value as the bytes of its JSON, in a tensor."""
    return torch.frombuffer(bytearray(json.dumps(value), "ascii"), dtype=torch.uint8)


def decoded(data: Tensor) -> Any:
    """The value that `encoded` made these bytes of."""
    return json.loads(data.numpy().tobytes())


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
    try:
        if size > 1:
            dist.init_process_group("nccl" if on_gpu else "gloo", rank=rank, world_size=size)
            if not on_gpu:
                _set_pg_timeout(LONGEST_WAIT)  # after connecting, for which torch's own limit holds
    except RuntimeError as error:
        raise ConnectionError(
            f"Process {rank} of {size} {NOT_REACHED} ({first_line(error)}). Between machines all ports must be "
            "open. GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME choose the network."
        ) from error
    try:
        yield World(rank, size, device)
    finally:
        if size > 1:
            gc.collect()  # shards of weights are in cycles of references, and keep the group and its threads
            dist.destroy_process_group()
