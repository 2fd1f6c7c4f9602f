"""The processor cores that this process may use, and processes that end with the one that started them."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time

from transformer.files import Mistake

PR_SET_PDEATHSIG = 1  # of Linux's prctl(2)


def core_numbers() -> list[int]:
    """The numbers of the processor cores that this process may use: 0, 1, ..., or those that a scheduler gave it."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def cores() -> int:
    """The number of processor cores that this process may use."""
    return len(core_numbers())


def workers() -> int:
    """How many processes prepare text: WORKERS in the environment, or one for each core.

    Raises Mistake if WORKERS is not a number from 1.
    """
    count = os.environ.get("WORKERS") or str(cores())
    if not (count.isascii() and count.isdecimal() and int(count)):
        raise Mistake(f"WORKERS={count!r} is not a number of processes. Set WORKERS to 1 or more, or unset it.")
    return int(count)


def end_with_parent(parent: int) -> None:
    """From now on the kernel kills this process when the process `parent`, which started it, ends.

    Without Linux a thread looks for the parent twice a second.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    else:
        threading.Thread(target=_wait_for_end, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # the parent ended before prctl was called
        os._exit(1)


def _wait_for_end(parent: int) -> None:
    """Kill this process when its parent is not the process `parent` any more."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)
