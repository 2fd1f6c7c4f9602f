"""The processor cores that a process may use, and work that is spread over them without changing its result."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from multiprocessing import get_context
from typing import Any, TypeVar

PR_SET_PDEATHSIG = 1  # of Linux's prctl(2)
Item = TypeVar("Item")
Result = TypeVar("Result")
_function: Callable[[Any], Any] | None = None  # of a worker process


def cores() -> int:
    """The number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def workers() -> int:
    """How many processes a stage before training works in: WORKERS in the environment, or one for each core.

    Raises ValueError if WORKERS is not a number from 1.
    """
    given = os.environ.get("WORKERS") or str(cores())
    if not (given.isdigit() and int(given)):
        raise ValueError(f"WORKERS={given!r} is not a number of processes. Set WORKERS to 1 or more, or unset it.")
    return int(given)


def in_order(make: Callable[[], Callable[[Item], Result]], items: Iterable[Item]) -> Iterator[Result]:
    """The results of a function for some items, in their order, computed by `workers()` processes.

    make: returns the function; called once in each process. Only a few items are read ahead, so memory stays bounded.
    With one worker, or one item, all is computed in this process. The first error of an item, in their order, is raised
    here. Raises ValueError if a worker process was killed.
    """
    waiting = iter(items)
    first = [*islice(waiting, 2)]
    count = workers() if len(first) == 2 else 1
    if count == 1:
        yield from map(make(), chain(first, waiting))
        return
    context = get_context("fork" if sys.platform == "linux" else None)
    pool = ProcessPoolExecutor(count, context, _start_worker, (make, os.getpid()))
    running: deque[Future] = deque()
    try:
        for item in chain(first, waiting):
            running.append(pool.submit(_work, item))
            if len(running) > 2 * count:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    except BrokenProcessPool:
        raise ValueError(
            f"One of {count} worker processes was killed, perhaps because memory is full. Set "
            f"WORKERS={count // 2 or 1} to start fewer, and run the same command again."
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker(make: Callable[[], Callable[[Any], Any]], parent: int) -> None:
    """Prepare a worker process: it ends with its parent, which alone obeys Ctrl-C."""
    global _function
    end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _function = make()


def _work(item: Any) -> Any:
    """The result for an item, in a worker process."""
    assert _function is not None
    return _function(item)


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
