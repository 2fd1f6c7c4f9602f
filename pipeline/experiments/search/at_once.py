"""Work on several things at once, of which none begins after one has failed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class NotBegun(Exception):
    """The end of an item that did not begin, because another one had failed."""


def at_once(work: Callable[[Item], Result], items: Iterable[Item], jobs: int) -> list[Result]:
    """The results of `work` for each item, in order; `jobs` items at a time.

    What `work` raises is raised here when the work that has begun has ended; no more begins.
    """
    failed = threading.Event()

    def one(item: Item) -> Result:
        if failed.is_set():
            raise NotBegun
        try:
            return work(item)
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(one, item) for item in items]
    errors = [error for future in futures if (error := future.exception()) and not isinstance(error, NotBegun)]
    if errors:
        raise errors[0]
    return [future.result() for future in futures]
