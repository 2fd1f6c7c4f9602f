"""Locks that keep trainings apart: one for each training, one for each processor core (GPUs: gpus.py)."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from pipeline.stage import project_root
from transformer.cores import core_numbers


@contextmanager
def hold_lock(path: Path, what: str = "training") -> Iterator[None]:
    """Hold a lock file, of a training or of `what`. If another process holds it, print a message and wait."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(
            f"Another process runs the same {what} (lock {path}). This process waits until that one has ended. "
            "Stop one of the two if you need only one.",
            flush=True,
        )
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


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
    while not (held := lock_free(folder, names, count)):
        if not printed:
            print(message, flush=True)
            printed = True
        time.sleep(1)
    try:
        yield list(held)
    finally:
        for lock in held.values():
            lock.release()


def lock_free(folder: Path, names: Sequence[str], count: int) -> dict[str, FileLock]:
    """Lock `count` of the lock files `names` in a folder that are free: name -> lock. Locks none if fewer are free."""
    held: dict[str, FileLock] = {}
    with FileLock(folder / "lock"):
        for name in names:
            with suppress(Timeout):
                lock = FileLock(folder / name)
                lock.acquire(timeout=0)
                held[name] = lock
            if len(held) == count:
                return held
        for lock in held.values():
            lock.release()
    return {}
