"""Locks that keep trainings apart: one for each processor core, one for each GPU."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pynvml
from filelock import FileLock, Timeout

from pipeline.workflow.stage import project_root
from transformer.cores import core_numbers

VISIBLE = "CUDA_VISIBLE_DEVICES"  # the GPUs that a process may use; CUDA reads it when it starts


@contextmanager
def hold_cores(count: int) -> Iterator[None]:
    """Hold `count` of the machine's cores, or all if it has fewer; wait until other trainings release enough cores.

    Only trainings of the same project exclude each other. The threads of a training wait for each other, so they must
    run at the same time: two trainings on the same two cores were measured to be five times slower each.
    """
    numbers = core_numbers()
    all_cores = len(numbers)
    count = min(count, all_cores)
    message = (
        f"Another training uses the cores that this one needs ({count} of {all_cores}). This training waits "
        "until they are free. To need one core only, set OMP_NUM_THREADS=1."
    )
    folder = project_root() / "work" / "cores" / platform.node()  # several machines may share the project's folder
    with hold_free(folder, [str(number) for number in numbers], count, message):
        yield


@contextmanager
def hold_free(folder: Path, names: Sequence[str], count: int, message: str) -> Iterator[list[str]]:
    """Hold `count` of the lock files `names` in a folder, and yield their names; wait until so many are free.

    message: printed once if this process has to wait.
    """
    folder.mkdir(parents=True, exist_ok=True)
    printed = False
    while not (locks := lock_free(folder, names, count)):
        if not printed:
            print(message, flush=True)
            printed = True
        time.sleep(1)
    try:
        yield list(locks)
    finally:
        for lock in locks.values():
            lock.release()


def lock_free(folder: Path, names: Sequence[str], count: int) -> dict[str, FileLock]:
    """Lock `count` of the lock files `names` in a folder that are free: name -> lock. Locks none if fewer are free."""
    locks: dict[str, FileLock] = {}
    with FileLock(folder / "lock"):
        for name in names:
            with suppress(Timeout):
                lock = FileLock(folder / name)
                lock.acquire(timeout=0)
                locks[name] = lock
            if len(locks) == count:
                return locks
        for lock in locks.values():
            lock.release()
    return {}


def installed_gpus() -> list[str]:
    """The UUIDs of the GPUs of this machine in NVML's order; none without an NVIDIA driver. CUDA is not started."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(pynvml.nvmlDeviceGetCount())]
        return [pynvml.nvmlDeviceGetUUID(handle) for handle in handles]
    finally:
        pynvml.nvmlShutdown()


def visible(uuids: Sequence[str], value: str | None) -> dict[str, str]:
    """The GPUs that a process may use: UUID -> its name in CUDA_VISIBLE_DEVICES, as CUDA reads that variable.

    uuids: of all GPUs of the machine. value: of that variable; None: it is not set, so all are visible. A name is a
    number, the beginning of a UUID, or a part of a GPU (MIG-...). CUDA ignores all names after the first unknown one.
    """
    gpus: dict[str, str] = {}
    for name in map(str.strip, value.split(",")) if value is not None else map(str, range(len(uuids))):
        if name.isascii() and name.isdecimal():
            fits = uuids[int(name) : int(name) + 1]
        else:
            fits = [name] if name.startswith("MIG-") else [uuid for uuid in uuids if name and uuid.startswith(name)]
        if len(fits) != 1:
            break
        gpus[fits[0]] = name
    return gpus


def visible_gpus() -> dict[str, str]:
    """The GPUs that this process may use: UUID -> its name in CUDA_VISIBLE_DEVICES. CUDA is not started."""
    return visible(installed_gpus(), os.environ.get(VISIBLE))


@contextmanager
def hold_gpus(count: int) -> Iterator[None]:
    """Hold `count` of the visible GPUs, and let CUDA see only these; wait until other trainings release enough.

    Enter before CUDA is started in this process. The kernel releases the locks when this process ends, also if it is
    killed. Only trainings of the same project exclude each other. Nothing is held on a machine whose GPUs NVML does not
    list. Raises ValueError if fewer than `count` are visible.
    """
    gpus = visible_gpus()
    if not gpus:
        yield
        return
    if count > len(gpus):
        raise ValueError(
            f"DEVICES={count}, but this process may use only {len(gpus)} of the GPUs here. Lower DEVICES, set it to "
            f"gpu for all of them, or change {VISIBLE}."
        )
    message = (
        f"Other trainings use the GPUs that this one needs ({count} of {len(gpus)}). This training waits until they "
        "are free."
    )
    with (
        hold_free(project_root() / "work" / "gpus", list(gpus), count, message) as uuids,
        show_only([gpus[uuid] for uuid in uuids]),
    ):
        yield


@contextmanager
def prefer_free_gpu() -> Iterator[None]:
    """Hold a free GPU, and let CUDA see only this one. If none is free, hold none: CUDA then uses the first one.

    For stages that translate: they end soon, so they do not wait for a training.
    """
    gpus = visible_gpus()
    if not gpus:
        yield
        return
    folder = project_root() / "work" / "gpus"
    folder.mkdir(parents=True, exist_ok=True)
    locks = lock_free(folder, list(gpus), 1)
    try:
        with show_only([gpus[uuid] for uuid in locks]):
            yield
    finally:
        for lock in locks.values():
            lock.release()


@contextmanager
def show_only(names: Sequence[str]) -> Iterator[None]:
    """Let CUDA, if it is started inside the block, see only the GPUs with these names. No names change nothing."""
    before = os.environ.get(VISIBLE)
    if names:
        os.environ[VISIBLE] = ",".join(names)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(VISIBLE, None)
        else:
            os.environ[VISIBLE] = before
