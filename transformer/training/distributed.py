"""Processes that train together: their ranks, and the values and tensors that they exchange.

Values travel as JSON, weights as safetensors, never as pickles, and over gloo also between GPUs. A single process
exchanges nothing and needs no network.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

# Imported before init_process_group: the functions of this module take the current process group as a default argument.
# Imported later, they would keep our group and its threads alive after destroy_process_group, and a thread that frees a
# tensor while Python exits aborts the process.
import torch.distributed.nn
from safetensors.torch import load, save
from torch import Tensor

from transformer.files import Mistake
from transformer.model.cpu import keep_freed_memory

# A process without sentences to translate waits for the others. A host that vanished is noticed after this time.
LONGEST_WAIT = timedelta(hours=2)


class Stopped(Exception):
    """Raised in all processes when one of them requests a stop."""


class LostConnection(Mistake):
    """Raised when another process of the training has ended or cannot be reached."""


@dataclass(frozen=True)
class World:
    """One of the processes that train together.

    rank: its number. size: how many processes there are. device: the device that it computes on. The methods are
    collective: all processes call them, and they raise LostConnection when another process has ended.
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
        """Surround code that exchanges tensors. Raises LostConnection in place of torch's error when it fails."""
        try:
            yield
        except RuntimeError as error:
            if not isinstance(error, dist.DistError) and "gloo" not in str(error):  # gloo has no exception of its own
                raise
            raise LostConnection(
                f"Process {self.rank} of {self.size} lost the connection to another process ({first_line(error)}). All "
                "processes stop. Run the same command again: a training resumes from its last saved state."
            ) from error

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum of a tensor over all processes, in place, on every process."""
        if self.size > 1:
            with self.exchange():
                dist.all_reduce(tensor)
        return tensor

    def any(self, flag: bool) -> bool:
        """Whether the flag of at least one process is set. The host exchanges it, without waiting for a GPU."""
        return bool(self.sum(torch.tensor(float(flag))))

    def wait(self) -> None:
        """Wait until all processes call this."""
        self.any(False)

    def broadcast(self, value: Any) -> Any:
        """The leader's value on every process. value: what JSON can hold; a tuple becomes a list."""
        return json.loads(self._bytes_of(0, json.dumps(value).encode())) if self.size > 1 else value

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, in order of rank, on every process. value: see `broadcast`."""
        if self.size == 1:
            return [value]
        data = json.dumps(value).encode()
        return [json.loads(self._bytes_of(rank, data)) for rank in range(self.size)]

    def tensors_from_leader(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The leader's tensors, by name, on every process, bit for bit and on the CPU. Other processes give none."""
        if self.size == 1:
            return tensors
        received = {}
        for name in self.broadcast(list(tensors)):  # one at a time, because memory holds each twice meanwhile
            received |= load(self._bytes_of(0, save({name: tensors[name].contiguous()}) if self.is_leader else b""))
        return received

    def agree(self, values: Mapping[str, str]) -> None:
        """Raise Mistake on every process if a value, by its name, is not equal on all of them."""
        hosts = self.gather([platform.node(), dict(values)])
        leader_host, expected = hosts[0]
        for rank, (host, own) in enumerate(hosts):
            names = sorted(name for name in expected | own if expected.get(name) != own.get(name))
            if names:
                raise Mistake(
                    f"{', '.join(names)}: not equal on {host} (process {rank}) and {leader_host} (process 0). No "
                    f"update was made. Give {host} the code, data, params and packages of {leader_host}."
                )

    def _bytes_of(self, rank: int, data: bytes) -> bytes:
        """The bytes of the process `rank` on every process; those of the others are ignored. They are not empty."""
        size = torch.tensor(len(data))
        with self.exchange():
            dist.broadcast(size, rank)
            own = self.rank == rank
            sent = (
                torch.frombuffer(bytearray(data), dtype=torch.uint8)
                if own
                else torch.empty(int(size), dtype=torch.uint8)
            )
            dist.broadcast(sent, rank)
        return sent.numpy().tobytes()


def first_line(error: Exception) -> str:
    """The first line of an error of torch, without the place in its source."""
    line = next(iter(str(error).split("\n")), "")
    return line.rpartition("] ")[2].strip().rstrip(".")


@contextmanager
def join_processes() -> Iterator[World]:
    """Join the processes that torchrun started (nccl between GPUs, gloo between CPUs); leave them after the block."""
    rank, size, local_rank = (
        int(os.environ.get(name, default)) for name, default in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0))
    )
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    try:
        if size > 1:
            backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
            dist.init_process_group(backend, rank=rank, world_size=size, timeout=LONGEST_WAIT)
    except RuntimeError as error:
        raise LostConnection(
            f"Process {rank} of {size} could not connect to the other processes ({first_line(error)}). Between "
            "machines all ports must be open. GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME choose the network."
        ) from error
    try:
        yield World(rank, size, device)
    finally:
        if size > 1:
            dist.destroy_process_group()


def prepare_process(deterministic: bool = False) -> None:
    """Set this process up for training. Call it once, before the first update.

    Freed memory is kept for the next batch, and attention on a GPU does not use cuDNN, which plans each new shape, so
    nearly each batch, for 20 to 40 ms. deterministic: use only operations that give the same bits each time.
    """
    keep_freed_memory()
    torch.backends.cuda.enable_cudnn_sdp(False)
    if deterministic != torch.are_deterministic_algorithms_enabled():  # the call imports torch's compiler: two seconds
        torch.use_deterministic_algorithms(deterministic)
