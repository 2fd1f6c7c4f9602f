"""A GPU of its own for each training and translation of a queue: a lock file in work/gpus for each GPU."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from pipeline.workflow.stage import project_root
from transformer.files import Mistake

VISIBLE = "CUDA_VISIBLE_DEVICES"  # the GPUs that a process may use; CUDA reads it when it starts
DRIVER = Path("/proc/driver/nvidia")


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, by their names in CUDA_VISIBLE_DEVICES. CUDA is not started."""
    if not DRIVER.exists():
        return []
    import torch  # imported here, since stages that translate by CTranslate2 do without

    count = torch.cuda.device_count()  # of the visible GPUs
    names = os.environ.get(VISIBLE)
    return list(map(str, range(count))) if names is None else [name.strip() for name in names.split(",")][:count]


def uuid_of(name: str) -> str:
    """The UUID of a GPU, or its name if nvidia-smi does not say: each job of a scheduler may call its own GPU 0."""
    with suppress(OSError, IndexError):
        words = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
        uuids = subprocess.run(words, capture_output=True, text=True).stdout.split()
        return uuids[int(name)] if name.isdecimal() else name
    return name


def lock_free(names: Sequence[str], count: int) -> dict[str, FileLock]:
    """Lock `count` of these GPUs that are free: name -> lock. Locks none if fewer are free."""
    folder = project_root() / "work" / "gpus" / platform.node()  # several machines may share the project's folder
    folder.mkdir(parents=True, exist_ok=True)
    locks: dict[str, FileLock] = {}
    with FileLock(folder / "lock"):
        for name in names:
            with suppress(Timeout):
                lock = FileLock(folder / f"{uuid_of(name)}.lock")
                lock.acquire(timeout=0)
                locks[name] = lock
            if len(locks) == count:
                return locks
        for lock in locks.values():
            lock.release()
    return {}


@contextmanager
def hold_gpus(count: int, wait: bool = True) -> Iterator[None]:
    """Hold `count` of the visible GPUs, and let CUDA see only these; wait until other trainings release enough.

    Enter before CUDA is started in this process. Nothing happens on a machine without GPUs of NVIDIA. wait: False: if
    no GPU is free, hold none, and CUDA uses the first. Raises Mistake if fewer than `count` are visible.
    """
    gpus = visible_gpus()
    if not gpus:
        yield
        return
    if count > len(gpus):
        raise Mistake(
            f"DEVICES={count}, but this process may use only {len(gpus)} of the GPUs here. Lower DEVICES, set it to "
            f"gpu for all of them, or change {VISIBLE}."
        )
    locks = lock_free(gpus, count)
    if wait and not locks:
        print(f"Other trainings use the GPUs that this one needs ({count} of {len(gpus)}). It waits.", flush=True)
    while wait and not locks:
        time.sleep(1)
        locks = lock_free(gpus, count)
    before = os.environ.get(VISIBLE)
    try:
        os.environ[VISIBLE] = ",".join(locks or gpus)
        yield
    finally:
        os.environ.pop(VISIBLE, None) if before is None else os.environ.update({VISIBLE: before})
        for lock in locks.values():
            lock.release()
