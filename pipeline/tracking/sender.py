"""Sends records to the store in a background thread: a stage never fails because of MLflow, nor waits long for it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, repeat
from pathlib import Path

from filelock import FileLock, Timeout

from pipeline.tracking.record import FOLDER, Record, records
from pipeline.tracking.store import Store, address, connect, is_permanent, reason, store_errors
from pipeline.tracking.sync import Sync

RETRY_DELAYS = (1, 2, 5, 15)  # seconds between tries, then 30 each
MESSAGE_INTERVAL = 5  # seconds between messages: what is added in that time shares one, which costs training less
REMEDY = "Results are not affected. Check MLFLOW_TRACKING_URI or, if unset, the disk (move a broken mlflow.db away)."


class Sender:
    """Sends what is added to a record until it is closed, and in between the records that earlier processes left.

    before: called before each message, with True at the last one. An error costs one printed line: the record stays,
    and a later `train`, `record` or `track` sends it.
    """

    def __init__(self, root: Path, record: Record, before: Callable[[bool], None] = lambda last: None) -> None:
        self._root, self._record, self._before = root, record, before
        self._changed, self._dirty, self._closing = threading.Condition(), True, False
        self._warned, self._sent = False, False
        self._blocked = False  # another process sends this record
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
        if self._thread.is_alive() and not self._all_sent():
            slow = f"MLflow has not answered within {timeout:g} s"
            self._warn("another process is sending this run" if self._blocked else slow)
        return self._all_sent()

    def _all_sent(self) -> bool:
        """Whether the store has all of this record. The thread may still send others."""
        with self._changed:
            return self._sent and not self._dirty

    def _run(self) -> None:
        """The thread: send until all is sent and the record is closed, or the store refuses it for good."""
        sync = Sync(self._record)
        for pause in chain(RETRY_DELAYS, repeat(30)):
            if self._deliver(sync):
                return
            with self._changed:
                self._dirty = True
                if self._closing:
                    break
                self._changed.wait_for(lambda: self._closing, pause)
        time.sleep(1)
        self._deliver(sync)  # at the end once more: another clone may have been in the way for a moment

    def _deliver(self, sync: Sync) -> bool:
        """Try to send all until the record is closed; returns False if the store cannot be reached now."""
        try:
            store, all_sent = connect(self._root), False
            self._blocked = True
            with sending(self._record):
                self._blocked = False
                while self._wait_for_work():
                    self._send(store, sync)
                    all_sent = all_sent or self._send_others(store)
                    with self._changed:
                        self._changed.wait_for(lambda: self._closing, MESSAGE_INTERVAL)
        except store_errors() as error:
            if not is_permanent(error):
                self._warn(reason(error))
                return False
            give_up(error)
        return True

    def _send_others(self, store: Store) -> bool:
        """Send the records that earlier processes left, until this one changes. Returns False if it did first."""
        try:
            return send_waiting(self._root, store, stop=lambda: self._dirty)
        except store_errors() as error:  # this record is sent all the same
            self._warn(reason(error))
            return True

    def _wait_for_work(self) -> bool:
        """Wait until something is to be sent; returns False if nothing is and none will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._dirty or self._closing)
            return self._dirty

    def _send(self, store: Store, sync: Sync) -> None:
        """Send what was added since the last message."""
        with self._changed:
            self._dirty, closing = False, self._closing
        self._before(closing)
        exists = sync.send(store, running=True)
        if not exists and not self._warned:
            self._warned = True
            print("Tracking is off for this stage: its run was deleted.", file=sys.stderr, flush=True)
        with self._changed:
            self._sent = exists

    def _warn(self, trouble: str) -> None:
        """Print one line about a failed try, the first time only."""
        if not self._warned:
            print(
                f"Tracking is delayed ({trouble}). The next `train`, `record` or `track` sends the run from "
                f"{self._root / FOLDER}.",
                REMEDY,
                file=sys.stderr,
                flush=True,
            )
        self._warned = True


def give_up(error: Exception) -> None:
    """Print that this stage is not tracked."""
    remedy = "Results are not affected. Free the disk." if is_disk(error) else REMEDY
    print(f"Tracking is off for this stage ({reason(error)}). {remedy}", file=sys.stderr, flush=True)


def is_disk(error: Exception) -> bool:
    """Whether an error is about a file of ours."""
    return isinstance(error, OSError) and error.filename is not None


@contextmanager
def sending(record: Record, timeout: float = -1) -> Iterator[None]:
    """Hold the lock of those who send a record, since two at once would send points twice. Raises Timeout."""
    record.folder.mkdir(parents=True, exist_ok=True)
    with FileLock(record.folder / "sending.lock", timeout=timeout):
        yield


def send_waiting(
    root: Path, store: Store, all_addresses: bool = False, stop: Callable[[], bool] = lambda: False
) -> bool:
    """Send the records for this store that no running process sends, the oldest first, and close abandoned runs.

    A record that the store refuses for good counts as sent. Also deletes double runs that were marked by members who
    may not delete them, if this user may. all_addresses: also send records that were made for a store at another
    address. stop: whether to end after the present one. Returns whether all are sent. Raises store errors.
    """
    for record in records(root):
        if stop():
            return False
        try:
            with sending(record, timeout=0):
                record.close_if_abandoned()
                ours = all_addresses or record.read()["address"] == address()
                if ours and record.is_unsent(store.identity):
                    Sync(record).send(store, running=False)
        except Timeout:
            continue  # its process still runs
        except store_errors() as error:
            if not is_permanent(error):
                raise
            print(f"MLflow refused {record.folder} ({reason(error)}). It is not sent again.", file=sys.stderr)
            record.mark_sent(store.identity, record.state())
    delete_marked(store)
    return True


def delete_marked(store: Store) -> None:
    """Delete the double runs that members who may not delete them marked. Both runs must have the same params."""
    for marked in store.search("tags.duplicate_of IS NOT NULL"):
        same = [run for run in store.runs(marked.tags.get("train_key", "")) if run.id == marked.tags["duplicate_of"]]
        if any(run.data.params == marked.data.params for run in same):
            marked.delete()
