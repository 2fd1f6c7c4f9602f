"""Sends records to the store in a background thread: a stage never fails because of MLflow, nor waits long for it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, repeat
from pathlib import Path

from filelock import FileLock, Timeout

from transformer.tracking.record import FOLDER, Record, records
from transformer.tracking.store import Store, address, connect, is_permanent, reason, store_errors
from transformer.tracking.sync import Sync

RETRY_DELAYS = (1, 2, 5, 15)  # seconds between tries, then 30 each
MESSAGE_INTERVAL = 5  # seconds between messages: what is added in that time shares one, which costs training less
REMEDY = "Results are not affected. Check MLFLOW_TRACKING_URI or, if unset, the disk (move a broken mlflow.db away)."


class Sender:
    """Sends what is added to a record until it is closed; first the records that earlier processes left.

    before: called before each message, with True at the last one. An error costs one printed line: the record stays,
    and a later stage sends it.
    """

    def __init__(self, root: Path, record: Record, before: Callable[[bool], None] = lambda last: None) -> None:
        self._root, self._record, self._before = root, record, before
        self._changed, self._dirty, self._closing = threading.Condition(), True, False
        self._warned, self._sent = False, False
        self._thread = threading.Thread(target=self._run, name="tracking", daemon=True)
        self._thread.start()

    def notify(self) -> None:
        """Say that the record was changed; returns at once."""
        with self._changed:
            self._dirty = True
            self._changed.notify()

    def close(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds until all is sent; returns whether it is."""
        with self._changed:
            self._closing = self._dirty = True
            self._changed.notify()
        self._thread.join(timeout)
        if self._thread.is_alive():
            self._warn(f"MLflow has not answered within {timeout:g} s")
        return self._sent

    def _run(self) -> None:
        with sending(self._record):  # waits while another process sends this record
            sync = Sync(self._record)
            for failures, pause in enumerate(chain(RETRY_DELAYS, repeat(30))):
                try:
                    store = connect(self._root)
                    send_waiting(self._root, store)
                    while not self._finished():
                        self._send(store, sync)
                    return
                except store_errors() as error:
                    if is_permanent(error):
                        print(
                            f"Tracking is off for this stage ({reason(error)}). {REMEDY}", file=sys.stderr, flush=True
                        )
                        return
                    self._warn(reason(error))
                with self._changed:  # at the end there is one more try: another clone may have been in the way
                    self._dirty = True
                    if self._changed.wait_for(lambda: self._closing and failures > 0, pause):  # noqa: B023
                        return

    def _finished(self) -> bool:
        """Wait until something is to be sent; returns True if nothing is and none will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._dirty or self._closing)
            return self._closing and not self._dirty

    def _send(self, store: Store, sync: Sync) -> None:
        """Send what was added since the last message, and wait MESSAGE_INTERVAL seconds or until close()."""
        with self._changed:
            self._dirty, self._sent, closing = False, False, self._closing
        self._before(closing)
        if not sync.send(store, running=True):
            print("Tracking is off for this stage: its run was deleted.", file=sys.stderr, flush=True)
            with self._changed:
                self._changed.wait_for(lambda: self._closing)
                self._dirty = False
            return
        with self._changed:
            self._sent = True
            self._changed.wait_for(lambda: self._closing, MESSAGE_INTERVAL)

    def _warn(self, trouble: str) -> None:
        """Print one line about a failed try, the first time only."""
        if not self._warned:
            place = self._root / FOLDER
            print(f"Tracking is delayed ({trouble}): a later stage sends the run from {place}.", REMEDY,
                  file=sys.stderr, flush=True)  # fmt: skip
        self._warned = True


@contextmanager
def sending(record: Record, timeout: float = -1) -> Iterator[None]:
    """Hold the lock of those who send a record, since two at once would send points twice. Raises Timeout."""
    record.folder.mkdir(parents=True, exist_ok=True)
    with FileLock(record.folder / "sending.lock", timeout=timeout):
        yield


def send_waiting(root: Path, store: Store) -> None:
    """Send the records for this store that no running process sends, the oldest first, and close abandoned runs.

    A record that the store refuses for good counts as sent. Also deletes double runs that were marked by members who
    may not delete them, if this user may. Raises store errors.
    """
    for record in records(root):
        try:
            with sending(record, timeout=0):
                record.close_if_abandoned()
                if record.read()["address"] == address() and record.waits(store.identity):
                    Sync(record).send(store, running=False)
        except Timeout:
            continue  # its process still runs
        except store_errors() as error:
            if not is_permanent(error):
                raise
            print(f"MLflow refused {record.folder} ({reason(error)}). It is not sent again.", file=sys.stderr)
            record.mark_sent(store.identity, record.state())
    for marked in store.search("tags.duplicate_of IS NOT NULL"):
        marked.delete()
