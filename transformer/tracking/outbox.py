"""What a stage has to tell MLflow, kept in work/outbox until a thread in the background has told it.

One file a process, one act a line. Acts may be told twice and change nothing the second time; so a file whose process
died (its lock is free), or whose server was away, is simply told again from its beginning by the next process.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock, Timeout

from transformer.tracking.store import address, reason, refused, store_errors

Act = dict[str, Any]
PAUSES = (1, 2, 5, 15)  # seconds between tries, then 30 each
REST = 5  # seconds between messages: what is posted meanwhile goes together, and costs the training less
REMEDY = (
    "results are not affected; check MLFLOW_TRACKING_URI or, if it is unset, the disk (move a spoilt mlflow.db away)"
)


class Clerk(Protocol):
    """Tells the store the acts of one process, in order."""

    def tell(self, acts: list[Act]) -> None: ...

    def died(self) -> None:
        """The process ended without a last word."""


class Outbox:
    """The acts of this process, on their way to the store. It never fails a stage: trouble costs one line.

    clerk: makes one for the acts of a dead process, or, called with note, for those of this one.
    journal: keep the file in work/journal when all is told, for `pipeline.track` after a lost database.
    """

    def __init__(self, root: Path, clerk: Callable[..., Clerk], journal: bool = False) -> None:
        self._folder, self._clerk = root / "work" / "outbox", clerk
        self._path = self._folder / f"{time.time_ns()}-{os.getpid()}.jsonl"
        self._waiting: list[Act] = []
        self._news, self._closing = threading.Condition(), False
        self._warned, self._off = False, False
        self._lock = FileLock(f"{self._path}.lock")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
            self._file = open(self._path, "w", encoding="utf-8")  # noqa: SIM115 (closed in close)
            self._write({"act": "open", "address": address(), "journal": journal})
        except OSError as error:
            self._give_up(error)
            return
        self._thread = threading.Thread(target=self._deliver, name="tracking", daemon=True)
        self._thread.start()

    def post(self, act: str, **what: Any) -> None:
        """Take an act; returns at once."""
        if self._off:
            return
        try:
            self._write({"act": act, **what})
        except OSError as error:
            self._give_up(error)
            return
        with self._news:
            self._waiting.append({"act": act, **what})
            self._news.notify()

    def close(self, patience: float) -> bool:
        """Wait at most `patience` seconds until all is told; whether it is. What is not stays for the next process."""
        if not self._off:
            with self._news:
                self._closing = True
                self._news.notify()
            self._thread.join(patience)
            self._file.close()
        told = not self._off and not self._thread.is_alive() and not self._waiting
        if told:
            finish(self._path)
        elif not self._off:
            self._say(f"MLflow has not answered within {patience:g} s")
        if told or self._off:
            with suppress(OSError):
                Path(self._lock.lock_file).unlink(missing_ok=True)
            self._lock.release()
        return told

    def note(self, act: str, **what: Any) -> None:
        """Keep an act that the clerk tells by itself."""
        with suppress(OSError, ValueError):  # a full disk; a file that is closed
            self._write({"act": act, **what})

    def _write(self, act: Act) -> None:
        with self._news:
            self._file.write(json.dumps(act) + "\n")
            self._file.flush()

    def _deliver(self) -> None:
        """Tell what dead processes left, then what is posted here; after a failure try again, ever more seldom."""
        own = self._clerk(self.note)
        for pause in chain(PAUSES, repeat(30)):
            try:
                tell_the_dead(self._folder, self._clerk)
                while acts := self._next():
                    own.tell(acts)
                    with self._news:
                        del self._waiting[: len(acts)]
                        self._news.wait_for(lambda: self._closing, REST)
                return
            except store_errors() as error:
                if refused(error):
                    self._give_up(error)
                    return
                self._say(reason(error))
            with self._news:
                if self._closing or self._news.wait_for(lambda: self._closing, pause):
                    return

    def _next(self) -> list[Act]:
        """The acts that wait, or when there are none the next ones; none when no more will come."""
        with self._news:
            self._news.wait_for(lambda: self._waiting or self._closing)
            return list(self._waiting)

    def _say(self, trouble: str) -> None:
        """One line, the first time."""
        if not self._warned:
            told = f"tracking waits: {trouble}; kept in {self._folder} and sent by a later stage; {REMEDY}"
            print(told, file=sys.stderr, flush=True)
        self._warned = True

    def _give_up(self, error: Exception) -> None:
        """Nothing more is tried, and nothing kept."""
        self._off = True
        print(f"tracking is off for this stage: {reason(error)}; {REMEDY}", file=sys.stderr, flush=True)
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


def tell_the_dead(folder: Path, clerk: Callable[..., Clerk]) -> None:
    """Tell, the oldest first, what processes left that are no more and told the same store. Raises store errors."""
    with FileLock(folder / "dead.lock"):
        for path in sorted(folder.glob("*.jsonl")):
            lock = FileLock(f"{path}.lock")
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue  # it lives
            try:
                tell_one(path, clerk())
                if not path.exists():
                    Path(lock.lock_file).unlink(missing_ok=True)
            finally:
                lock.release()


def tell_one(path: Path, clerk: Clerk) -> None:
    """Tell the acts of a dead process and finish its file, unless they were for another store. Raises store errors."""
    acts = list(read(path))
    if not acts or acts[0].get("address") != address():
        return
    try:
        clerk.tell(acts[1:])
        clerk.died()
    except store_errors() as error:
        if not refused(error):
            raise
        print(f"{path} is dropped: {reason(error)}", file=sys.stderr, flush=True)
    finish(path)


def read(path: Path) -> Iterator[Act]:
    """The acts of a file, to the first line that is not whole."""
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)
    except (OSError, ValueError):
        return


def finish(path: Path) -> None:
    """All of a file is told: remove it, or put it into the journal if it asks for that."""
    if next(read(path), {}).get("journal"):
        journal = path.parent.parent / "journal"
        journal.mkdir(exist_ok=True)
        path.replace(journal / path.name)
    else:
        path.unlink(missing_ok=True)
