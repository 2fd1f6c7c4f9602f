"""Events for MLflow, kept in work/outbox until a background thread has sent them.

Each process writes one file, with one event per line. Sending an event twice changes nothing. So if a process has ended
(the lock of its file is free) or its server was down, the next process sends the file again from its beginning.
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

Event = dict[str, Any]  # "event" (the kind: open, train, curve, end or configuration), and the fields of that kind
RETRY_DELAYS = (1, 2, 5, 15)  # seconds between tries, then 30 each
MESSAGE_INTERVAL = 5  # seconds between messages: events of that time share one message, which costs training less
REMEDY = "Results are not affected. Check MLFLOW_TRACKING_URI or, if unset, the disk (move a broken mlflow.db away)."


class Sender(Protocol):
    """Sends the events of one process to the store, in order."""

    def send(self, events: list[Event]) -> None: ...

    def mark_killed(self) -> None:
        """Record that the process was killed, if its events do not include an end."""


class Outbox:
    """The events of this process until they are sent. It never fails a stage: an error costs one printed line.

    make_sender: without arguments, makes a Sender for an earlier process; with the method `keep`, one for this process.
    journal: whether the file is moved to work/journal when all its events are sent, so that `python -m pipeline track`
    can restore a lost database from it.
    """

    def __init__(self, root: Path, make_sender: Callable[..., Sender], journal: bool = False) -> None:
        self._folder, self._make_sender = root / "work" / "outbox", make_sender
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
        """Write an event to the file and queue it for sending; returns at once."""
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
        """Wait at most `timeout` seconds until all events are sent; returns whether they are.

        The file of unsent events stays for the next process.
        """
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
        """Write an event to the file only: the sender has sent it itself."""
        with suppress(OSError, ValueError):  # a full disk; a closed file
            self._write({"event": event, **details})

    def _write(self, event: Event) -> None:
        with self._changed:
            self._file.write(json.dumps(event) + "\n")
            self._file.flush()

    def _deliver(self) -> None:
        """Send what earlier processes left, then the events of this one; wait longer after each failure."""
        own = self._make_sender(self.keep)
        for pause in chain(RETRY_DELAYS, repeat(30)):
            try:
                send_leftovers(self._folder, self._make_sender)
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
        """Wait for events that are not sent yet and return them; an empty list means that the outbox is closing."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            return list(self._waiting)

    def _warn(self, trouble: str) -> None:
        """Print one line about a failed try, the first time only."""
        if not self._warned:
            warning = f"Tracking is delayed ({trouble}): the events stay in {self._folder} for a later stage."
            print(warning, REMEDY, file=sys.stderr, flush=True)
        self._warned = True

    def _give_up(self, error: Exception) -> None:
        """Switch tracking off for this process and delete its file."""
        self._off = True
        print(f"Tracking is off for this stage ({reason(error)}). {REMEDY}", file=sys.stderr, flush=True)
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


def send_leftovers(folder: Path, make_sender: Callable[..., Sender]) -> None:
    """Send the files of processes that have ended, the oldest first. Raises store errors.

    Files that were written for another store stay.
    """
    with FileLock(folder / "dead.lock"):
        for path in sorted(folder.glob("*.jsonl")):
            lock = FileLock(f"{path}.lock")
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue  # its process still runs
            try:
                send_file(path, make_sender())
                if not path.exists():
                    Path(lock.lock_file).unlink(missing_ok=True)
            finally:
                lock.release()


def send_file(path: Path, sender: Sender) -> None:
    """Send the file of a process that has ended, unless it is for another store. Raises store errors.

    A file that the store refuses for good counts as sent.
    """
    events = list(read_events(path))
    if not events or events[0].get("address") != address():
        return
    try:
        sender.send(events[1:])
        sender.mark_killed()
    except store_errors() as error:
        if not is_permanent(error):
            raise
        print(f"MLflow refused {path} ({reason(error)}). It is not sent again.", file=sys.stderr, flush=True)
    finish(path)


def read_events(path: Path) -> Iterator[Event]:
    """The events of a file, up to the first incomplete line."""
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                event = json.loads(line)
                yield {"event": event.pop("act", None), **event}  # version 0.1.0 wrote the key "act"
    except (OSError, ValueError):
        return


def finish(path: Path) -> None:
    """Remove a file whose events are all sent, or move it to work/journal if its first event asks for that."""
    if next(read_events(path), {}).get("journal"):
        journal = path.parent.parent / "journal"
        journal.mkdir(exist_ok=True)
        path.replace(journal / path.name)
    else:
        path.unlink(missing_ok=True)
