"""Parallel text files in blocks of lines, and work on blocks by several processes, with the results in order."""

from __future__ import annotations

import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from itertools import chain, islice
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from transformer.cores import end_with_parent, workers
from transformer.files import Mistake

BLOCK_LINES = 20_000  # of a block, whatever the number of processes that read blocks
Item = TypeVar("Item")
Result = TypeVar("Result")
_function: Callable[[Any], Any] | None = None  # of a worker process
_error: Exception | None = None  # raised when a worker process made its function


class Block(NamedTuple):
    """Some consecutive lines of parallel files, which another process can read by itself."""

    first: int  # number of the first line, from 1
    count: int  # lines
    spans: tuple[tuple[Path, int, int], ...]  # of each file: path, and where the lines start and end, in bytes

    def bytes(self) -> list[bytes]:
        """The lines of each file as they are on the disk."""
        parts = []
        for path, start, end in self.spans:
            with open(path, "rb") as file:
                file.seek(start)
                parts.append(file.read(end - start))
        return parts

    def lines(self) -> list[list[str]]:
        """The lines of each file, without their line feed."""
        return [text.decode("utf-8").removesuffix("\n").split("\n") for text in self.bytes()]


def blocks(*paths: Path, size: int = BLOCK_LINES) -> Iterator[Block]:
    """Parallel files, of equally many lines that end in \n, to blocks of `size` lines. The last may have fewer."""
    with ExitStack() as stack:
        files = [stack.enter_context(open(path, "rb")) for path in paths]
        starts, first = [0] * len(files), 1
        while True:
            sizes = [[len(line) for line in islice(file, size)] for file in files]
            assert len({len(lengths) for lengths in sizes}) == 1, "the files have unequal numbers of lines"
            if not (count := len(sizes[0])):
                return
            ends = [start + sum(lengths) for start, lengths in zip(starts, sizes, strict=True)]
            yield Block(first, count, tuple(zip(paths, starts, ends, strict=True)))
            starts, first = ends, first + count


def map_in_order(make: Callable[[], Callable[[Item], Result]], items: Iterable[Item]) -> Iterator[Result]:
    """The results of a function for some items, in their order, computed by `workers()` processes.

    make: returns the function; called once in each process. Only a few items are read ahead, so memory stays bounded.
    With one worker, or one item, all is computed in this process. The first error of an item, in their order, is raised
    here. Raises Mistake if WORKERS is wrong, or a worker process was killed.
    """
    most, waiting = workers(), iter(items)
    first = [*islice(waiting, 2)]
    count = most if len(first) == 2 else 1
    if count == 1:
        yield from map(make(), chain(first, waiting))
        return
    earlier = set(active_children())
    context = get_context("fork" if sys.platform == "linux" else None)
    pool = ProcessPoolExecutor(count, context, _start_worker, (make, os.getpid()))
    try:
        yield from _results(pool, chain(first, waiting), ahead=2 * count)
    except BaseException as error:
        for process in set(active_children()) - earlier:
            process.kill()  # nobody waits for its result any more
        if isinstance(error, BrokenProcessPool):
            raise Mistake(
                f"One of {count} worker processes was killed, perhaps because memory is full. Set "
                f"WORKERS={count // 2 or 1} to start fewer, and run the same command again."
            ) from None
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _results(pool: ProcessPoolExecutor, items: Iterable[Any], ahead: int) -> Iterator[Any]:
    """The results for items, in order. ahead: how many items the pool gets before the first result is taken."""
    running: deque[Future] = deque()
    for item in items:
        running.append(pool.submit(_work, item))
        if len(running) > ahead:
            yield running.popleft().result()
    while running:
        yield running.popleft().result()


def _start_worker(make: Callable[[], Callable[[Any], Any]], parent: int) -> None:
    """Prepare a worker process: it ends with its parent, which alone obeys Ctrl-C."""
    global _function, _error
    end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _function = make()
    except Exception as error:
        _error = error


def _work(item: Any) -> Any:
    """The result for an item, in a worker process. Raises what `make` raised."""
    if _error is not None:
        raise _error
    assert _function is not None
    return _function(item)
