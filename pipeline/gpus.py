"""Locks that keep trainings apart on a machine with several GPUs: each training computes on GPUs of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pynvml

from pipeline.locks import hold_free, lock_free
from pipeline.stage import project_root

VISIBLE = "CUDA_VISIBLE_DEVICES"  # the GPUs that a process may use; CUDA reads it when it starts


def installed() -> list[str]:
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


def visible(uuids: Sequence[str], given: str | None) -> dict[str, str]:
    """The GPUs that a process may use: UUID -> its name in CUDA_VISIBLE_DEVICES, as CUDA reads that variable.

    uuids: of all GPUs of the machine. given: the variable's value; None: it is not set, so all are visible. A name is a
    number, the beginning of a UUID, or a part of a GPU (MIG-...). CUDA ignores all names after the first unknown one.
    """
    found: dict[str, str] = {}
    for name in map(str.strip, given.split(",")) if given is not None else map(str, range(len(uuids))):
        if name.isascii() and name.isdecimal():
            fits = uuids[int(name) : int(name) + 1]
        else:
            fits = [name] if name.startswith("MIG-") else [one for one in uuids if name and one.startswith(name)]
        if len(fits) != 1:
            break
        found[fits[0]] = name
    return found


def visible_gpus() -> dict[str, str]:
    """The GPUs that this process may use: UUID -> its name in CUDA_VISIBLE_DEVICES. CUDA is not started."""
    return visible(installed(), os.environ.get(VISIBLE))


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
        hold_free(project_root() / "work" / "gpus", list(gpus), count, message) as held,
        only([gpus[uuid] for uuid in held]),
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
    held = lock_free(folder, list(gpus), 1)
    try:
        with only([gpus[uuid] for uuid in held]):
            yield
    finally:
        for lock in held.values():
            lock.release()


@contextmanager
def only(names: Sequence[str]) -> Iterator[None]:
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
