"""Bring a store to what a record says. Doing it again changes nothing.

While a clone trains, it writes to a run of its own, found by train_key and the clone's id. The stage record adds
config_key: from then on the run is found by it, from any clone. If two clones have a run of the same configuration, the
first one stays.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.tracking.record import COMPARED, ORIGIN, Record, is_origin, short_hash
from pipeline.tracking.run import Row, TrackedRun
from pipeline.tracking.seeds import group_seeds
from pipeline.tracking.store import Store, is_permanent, store_errors

SPENT = ("train_seconds", "train_tokens")
RECORDINGS = "recordings"  # the folder of a run with the tables of its later recordings


class Sync:
    """Sends one record, each time what was added to it."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.run_id = ""  # of the run that has the first `rows_sent` rows
        self.rows_sent, self.steps = 0, dict[str, set[int]]()
        self.recordings = ""  # the table that was sent

    def send(self, store: Store, running: bool) -> bool:
        """Write to the run what it lacks. Raises store errors.

        Returns False if the run was deleted and stays so: if a user deleted it after this object first sent it, or,
        with running=False, at any time. running: whether the stage that writes the record runs now: it makes a run
        again that was deleted before.
        """
        try:
            return self._send(store, running)
        except store_errors() as error:
            if not is_permanent(error) or "config_key" not in self.record.read():
                raise
            # Another clone recorded the same meanwhile, and deleted this run in favour of its own.
            return self._send(store, running)

    def _send(self, store: Store, running: bool) -> bool:
        """See `send`."""
        state = self.record.state()  # before the rest is read: what is added meanwhile is sent the next time
        wanted, rows = self.record.read(), list(self.record.rows())
        with store.lock:
            run = find(store, wanted)
            if run is None and (self.run_id or (not running and self._was_deleted(store, wanted))):
                self.record.mark_sent(store.identity, state)
                return False
            run = run or store.create_run(wanted["name"], keys(store, wanted), wanted["start"])
            if "config_key" in wanted:
                run = claim(store, run, wanted)
        if run.of_clone(store.clone):  # otherwise its own clone writes it
            self._write(store, run, wanted, rows, state)
        if store.takes_artifacts:
            self._write_recordings(store, run, wanted)
        if wanted.get("seeds_key"):
            with store.lock:
                group_seeds(store, wanted["seeds_key"], [name for name in wanted["scores"] if name not in COMPARED])
        self.record.mark_sent(store.identity, state)
        return True

    def _write_recordings(self, store: Store, run: TrackedRun, wanted: Mapping[str, Any]) -> None:
        """Write the table of later recordings: a file for each clone, so that two at once do not lose rows."""
        if rows := later_recordings(store, run, wanted):
            text = io.StringIO()
            csv.writer(text, lineterminator="\n").writerows([[*ORIGIN, *SPENT], *rows])
            if text.getvalue() != self.recordings:
                self.recordings = text.getvalue()
                store.client.log_text(run.id, self.recordings, f"{RECORDINGS}/{store.clone}.csv")

    def _was_deleted(self, store: Store, wanted: Mapping[str, Any]) -> bool:
        """Whether a run that is not found was deleted: for good, if this store had it; or it is in the trash.

        A run that a stage of this clone made, and that was sent nowhere since, is new.
        """
        sent = self.record.sent()
        if store.identity in sent or not (sent or wanted.get("pulled")):
            return store.identity in sent
        name = "config_key" if "config_key" in wanted else "train_key"
        trash = [
            TrackedRun(store.client, run)
            for run in store.all_runs(f"tags.{name} = '{wanted[name]}'")
            if run.info.lifecycle_stage == "deleted"
        ]
        return any(name == "config_key" or run.fits(wanted["params"]) for run in trash)

    def _write(
        self, store: Store, run: TrackedRun, wanted: Mapping[str, Any], rows: Sequence[Row], state: Mapping[str, Any]
    ) -> None:
        """Write params, curve, scores, tags, status and files to a run of this clone. state: Record.state()."""
        if run.id != self.run_id:
            self.run_id, self.rows_sent, self.steps = run.id, 0, {}
        run.steps = self.steps
        tags = {name: tag for name, tag in wanted["tags"].items() if not (is_origin(name) and name in run.tags)}
        if "incomplete" in wanted:
            tags["incomplete"] = wanted["incomplete"]
        elif "incomplete" in run.tags:
            store.client.delete_tag(run.id, "incomplete")
        scores = {**wanted.get("scores", {}), **wanted.get("costs", {})}
        run.log(wanted["params"], rows[self.rows_sent :], scores, {**tags, **keys(store, wanted)})
        self.rows_sent = len(rows)
        run.log_status(wanted["status"], wanted.get("end"))
        run.log_datasets(wanted.get("datasets", []))
        if store.takes_artifacts:
            sent = self.record.sent().get(store.identity, {}).get("files", {})
            run.log_files(
                {name: path for name, path in self.record.files().items() if sent.get(name) != state["files"].get(name)}
            )


def keys(store: Store, wanted: Mapping[str, Any]) -> dict[str, str]:
    """The tags by which a run is found."""
    names = ("train_key", "config_key", "seeds_key")
    found = {name: wanted[name] for name in names if name in wanted}
    return {"clone": store.clone, "params_key": short_hash(wanted["params"]), **found}


def find(store: Store, wanted: Mapping[str, Any]) -> TrackedRun | None:
    """The run of a record; None if there is none.

    That is the first run that has its config_key; else this clone's run of the same training that has no config_key
    and no other params. Of several such runs a finished one: version 0.1 made more than one.
    """
    runs = store.runs(wanted["train_key"])
    recorded = [run for run in runs if "config_key" in wanted and run.tags.get("config_key") == wanted["config_key"]]
    params_key = short_hash(wanted["params"])  # of a run that has no params yet; runs of version 0.1 have no key
    own = [
        run
        for run in runs
        if is_unclaimed(store, run)
        and run.fits(wanted["params"])
        and run.tags.get("params_key", params_key) == params_key
    ]
    own.sort(key=lambda run: run.info.status != "FINISHED")
    return next(iter(sorted(recorded, key=TrackedRun.age) + own), None)


def is_unclaimed(store: Store, run: TrackedRun) -> bool:
    """Whether a run was begun by this clone and has no configuration yet."""
    return run.of_clone(store.clone) and not {"config_key", "duplicate_of"} & run.tags.keys()


def claim(store: Store, run: TrackedRun, wanted: Mapping[str, Any]) -> TrackedRun:
    """Give a run the tag config_key; returns the first run that has it, and deletes the others. Needs store.lock.

    The first run may be another clone's that recorded the same at the same time: both clones come to the same choice.
    """
    key = wanted["config_key"]
    if run.tags.get("config_key") != key:  # later a run keeps its name: a user may have typed one in the page
        store.client.update_run(run.id, name=wanted["name"])
        store.client.set_tag(run.id, "config_key", key)
    runs = store.runs(wanted["train_key"])
    first, *others = sorted((one for one in runs if one.tags.get("config_key") == key), key=TrackedRun.age)
    params = {name: str(value) for name, value in wanted["params"].items()}
    # What this clone trained and does not need, since another clone had recorded the same before.
    others += [one for one in runs if is_unclaimed(store, one) and one.data.params == params]
    for other in others:
        other.delete_as_duplicate(first)
    return first


def later_recordings(store: Store, run: TrackedRun, wanted: Mapping[str, Any]) -> list[list[str]]:
    """The rows of the table of later recordings by this clone: from another commit, experiment or user than the first.

    A recording by another clone than the run's has the seconds and tokens that were spent there.
    """
    own = run.of_clone(store.clone)
    first = {**(wanted["tags"] if own else {}), **run.tags}
    spent = ["" if own else str(wanted["costs"].get(name, "")) for name in SPENT]
    found = []
    for recording in wanted.get("recordings", []):
        # What a stage recorded names all it has; what comes from git names only the commit and the experiment.
        names = [name for name in ORIGIN if name in recording or (name == "git_dirty" and "mlflow.user" in recording)]
        if any(recording.get(name) != first.get(name) for name in names):
            found.append([*(recording.get(name, "") for name in ORIGIN), *spent])
    return found
