"""Locks that keep trainings apart: one for each training, one for each processor core."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from pipeline.shared.stage import project_root
from transformer.cores import core_numbers


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock file of a training. If another process holds it, print a message and wait."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(
            f"Another process runs the same training (lock {path}). This process waits until that one has ended. "
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
    folder = project_root() / "work" / "cores" / platform.node()  # several machines may share the project's folder
    folder.mkdir(parents=True, exist_ok=True)
    paths, printed = [folder / str(number) for number in numbers], False
    while not (held := lock_free_cores(paths, count)):
        if not printed:
            print(
                f"Another training uses the cores that this one needs ({count} of {all_cores}). This training waits "
                "until they are free. To need one core only, set OMP_NUM_THREADS=1.",
                flush=True,
            )
            printed = True
        time.sleep(1)
    try:
        yield
    finally:
        for lock in held:
            lock.release()


def lock_free_cores(paths: list[Path], count: int) -> list[FileLock]:
    """Lock `count` of the lock files `paths` that are free, and return the locks. Locks none if fewer are free."""
    held: list[FileLock] = []
    with FileLock(paths[0].with_name("lock")):
        for path in paths:
            with suppress(Timeout):
                lock = FileLock(path)
                lock.acquire(timeout=0)
                held.append(lock)
            if len(held) == count:
                return held
        for lock in held:
            lock.release()
    return []
