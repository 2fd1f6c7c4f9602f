"""Locks that keep two trainings apart."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from pipeline.shared.stage import project_root
from transformer import cores as machine


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold a lock file; who comes second says so and waits."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(f"another process is at the same training; waiting for it to finish ({path})", flush=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def cores(count: int) -> Iterator[None]:
    """Hold `count` of the machine's cores, or all, against other trainings of this project; wait until they are free.

    Threads that wait for each other must run at the same time: two trainings on the same two cores were measured to be
    five times slower each.
    """
    there = machine.cores()
    folder = project_root() / "work" / "cores"
    folder.mkdir(parents=True, exist_ok=True)
    paths, told = [folder / str(number) for number in range(there)], False
    while not (held := free_locks(paths, min(count, there))):
        if not told:
            print("waiting for another training to free its cores; OMP_NUM_THREADS=1 needs one only", flush=True)
            told = True
        time.sleep(1)
    try:
        yield
    finally:
        for lock in held:
            lock.release()


def free_locks(paths: list[Path], count: int) -> list[FileLock]:
    """`count` locks of those that nobody holds, taken together; none if they are fewer."""
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
