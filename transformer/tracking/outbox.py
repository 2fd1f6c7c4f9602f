"""What a stage has to tell MLflow, kept in work/outbox until a thread in the background has told it.

One file a process, one event a line. Events may be sent twice and change nothing the second time; so a file whose
process died (its lock is free), or whose server was away, is simply sent again from its beginning by the next process.
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

from transformer.tracking.store import address, is_permanent, reason, store_errors

Event = dict[str, Any]
RETRY_DELAYS = (1, 2, 5, 15)  # seconds between tries, then 30 each
MESSAGE_INTERVAL = 5  # seconds between messages: what is posted meanwhile goes together, and costs the training less
REMEDY = (
    "results are not affected; check MLFLOW_TRACKING_URI or, if it is unset, the disk (move a spoilt mlflow.db away)"
)


class Sender(Protocol):
    """Tells the store the events of one process, in order."""

    def send(self, events: list[Event]) -> None: ...

    def mark_killed(self) -> None:
        """The process ended without a last word."""


class Outbox:
    """The events of this process, on their way to the store. It never fails a stage: trouble costs one line.

    sender: makes one for the events of a dead process, or, called with keep, for those of this one.
    journal: keep the file in work/journal when all is told, for `pipeline.track` after a lost database.
    """

    def __init__(self, root: Path, sender: Callable[..., Sender], journal: bool = False) -> None:
        self._folder, self._sender = root / "work" / "outbox", sender
        self._path = self._folder / f"{time.time_ns()}-{os.getpid()}.jsonl"
        self._waiting: list[Event] = []
        self._changed, self._closing = threading.Condition(), False
        self._warned, self._off = False, False
        self._lock = FileLock(f"{self._path}.lock")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
            self._file = open(self._path, "w", encoding="utf-8")  # noqa: SIM115 (closed in close)
            self._write({"event": "open", "address": address(), "journal": journal})
        except OSError as error:
            self._give_up(error)
            return
        self._thread = threading.Thread(target=self._deliver, name="tracking", daemon=True)
        self._thread.start()

    def post(self, event: str, **details: Any) -> None:
        """Take an event; returns at once."""
        if self._off:
            return
        try:
            self._write({"event": event, **details})
        except OSError as error:
            self._give_up(error)
            return
        with self._changed:
            self._waiting.append({"event": event, **details})
            self._changed.notify()

    def close(self, timeout: float) -> bool:
        """Wait at most `patience` seconds until all is told; whether it is. What is not stays for the next process."""
        if not self._off:
            with self._changed:
                self._closing = True
                self._changed.notify()
            self._thread.join(timeout)
            self._file.close()
        sent = not self._off and not self._thread.is_alive() and not self._waiting
        if sent:
            finish(self._path)
        elif not self._off:
            self._warn(f"MLflow has not answered within {timeout:g} s")
        if sent or self._off:
            with suppress(OSError):
                Path(self._lock.lock_file).unlink(missing_ok=True)
            self._lock.release()
        return sent

    def keep(self, event: str, **details: Any) -> None:
        """Keep an event that the sender tells by itself."""
        with suppress(OSError, ValueError):  # a full disk; a file that is closed
            self._write({"event": event, **details})

    def _write(self, event: Event) -> None:
        with self._changed:
            self._file.write(json.dumps(event) + "\n")
            self._file.flush()

    def _deliver(self) -> None:
        """Tell what dead processes left, then what is posted here; after a failure try again, ever more seldom."""
        own = self._sender(self.keep)
        for pause in chain(RETRY_DELAYS, repeat(30)):
            try:
                send_leftovers(self._folder, self._sender)
                while events := self._next():
                    own.send(events)
                    with self._changed:
                        del self._waiting[: len(events)]
                        self._changed.wait_for(lambda: self._closing, MESSAGE_INTERVAL)
                return
            except store_errors() as error:
                if is_permanent(error):
                    self._give_up(error)
                    return
                self._warn(reason(error))
            with self._changed:
                if self._closing or self._changed.wait_for(lambda: self._closing, pause):
                    return

    def _next(self) -> list[Event]:
        """The events that wait, or when there are none the next ones; none when no more will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            return list(self._waiting)

    def _warn(self, trouble: str) -> None:
        """One line, the first time."""
        if not self._warned:
            warning = f"tracking waits: {trouble}; kept in {self._folder} and sent by a later stage; {REMEDY}"
            print(warning, file=sys.stderr, flush=True)
        self._warned = True

    def _give_up(self, error: Exception) -> None:
        """Nothing more is tried, and nothing kept."""
        self._off = True
        print(f"tracking is off for this stage: {reason(error)}; {REMEDY}", file=sys.stderr, flush=True)
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


def send_leftovers(folder: Path, sender: Callable[..., Sender]) -> None:
    """Tell, the oldest first, what processes left that are no more and told the same store. Raises store errors."""
    with FileLock(folder / "dead.lock"):
        for path in sorted(folder.glob("*.jsonl")):
            lock = FileLock(f"{path}.lock")
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue  # it lives
            try:
                send_file(path, sender())
                if not path.exists():
                    Path(lock.lock_file).unlink(missing_ok=True)
            finally:
                lock.release()


def send_file(path: Path, sender: Sender) -> None:
    """Send the events of a dead process and finish its file, unless they were for another store."""
    events = list(read_events(path))
    if not events or events[0].get("address") != address():
        return
    try:
        sender.send(events[1:])
        sender.mark_killed()
    except store_errors() as error:
        if not is_permanent(error):
            raise
        print(f"{path} is dropped: {reason(error)}", file=sys.stderr, flush=True)
    finish(path)


def read_events(path: Path) -> Iterator[Event]:
    """The events of a file, to the first line that is not whole."""
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                event = json.loads(line)
                yield {"event": event.pop("act", None), **event}  # version 0.1.0 wrote the key "act"
    except (OSError, ValueError):
        return


def finish(path: Path) -> None:
    """All of a file is told: remove it, or put it into the journal if it asks for that."""
    if next(read_events(path), {}).get("journal"):
        journal = path.parent.parent / "journal"
        journal.mkdir(exist_ok=True)
        path.replace(journal / path.name)
    else:
        path.unlink(missing_ok=True)
