"""Write the MLflow runs that are missing: after the database was lost, or for results that were pulled.

    python -m pipeline track

Reads   work/runs (the records of runs); git: DVC experiments and commits that changed dvc.lock; the work tree; DVC's
        cache
Writes  MLflow runs and registered models. Runs that exist, or that were deleted, are not changed, so a second `track`
        changes nothing
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from pipeline.shared.registration import register_model
from pipeline.shared.results import Results, WorkTree, kept
from pipeline.shared.run_record import origin, run_contents, run_keys
from pipeline.shared.stage import project_root, renamed
from transformer.tracking.record import Record, record_of, records
from transformer.tracking.recorder import write_configuration
from transformer.tracking.sender import send_waiting, sending
from transformer.tracking.store import Store, connect, reason, store_errors
from transformer.tracking.sync import Sync


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    try:
        counts = rebuild(project_root())
    except store_errors() as error:
        raise ValueError(f"MLflow took no runs: {reason(error)}") from None
    print(", ".join(f"{count} {what}" for what, count in counts.items()) or "There are no results yet.")


def rebuild(root: Path) -> Counter[str]:
    """Write the runs that are missing. Returns the numbers of runs there, made and left out. Raises store errors."""
    store = connect(root)
    there, seen, counts = Known.of(store, root), set[str](), Counter[str]()
    send_waiting(root, store)
    for results, tags in [*kept(), (WorkTree(), origin())]:
        try:
            if stale := results.stale():
                raise ValueError(f"it is stale: `dvc repro` would run {stale}")
            _, config_key = run_keys(results)
            if config_key not in seen:
                seen.add(config_key)
                complete(root, store, results, tags, there)
                counts["there" if config_key in there.runs | there.deleted else "made"] += 1
        except (ValueError, KeyError, OSError) as error:
            if isinstance(results, WorkTree):
                continue  # not run yet, or edited since
            counts["left out (stale, not in DVC's cache, or of another version of this project)"] += 1
            if "DVC_EXP_NAME" in tags:  # not for commits: a long history has many that were never pulled
                print(f"{results.name} was left out: {error}", file=sys.stderr)
    if made := Known.of(store, root).runs - there.runs - seen:  # by records of results that are in no commit
        counts["made"] += len(made)
    return counts


def complete(root: Path, store: Store, results: Results, origin: Mapping[str, str], there: Known) -> None:
    """Write the run of results and register their model, where these are missing. Raises store errors."""
    train_key, config_key = run_keys(results)
    if config_key in there.registered | there.deleted:
        return
    contents = run_contents(results, origin)
    if config_key not in there.runs:
        record = record_of(root, train_key, contents["params"], config_key)
        with TemporaryDirectory() as folder:
            if record.read().get("config_key") != config_key:  # of another clone, which has the record
                record = Record(Path(folder) / "record")
                write_configuration(root, record, contents)
            with sending(record):
                Sync(record).send(store, running=False)
    register_model(results, contents, origin)


class Known(NamedTuple):
    """The config_keys of the runs of a store, of those with a registered model, and of those that were deleted."""

    runs: set[str]
    registered: set[str]
    deleted: set[str]

    @classmethod
    def of(cls, store: Store, root: Path) -> Known:
        """Read them. Deleted for good are those that this store had, by the records of this clone, and has no more."""
        known = cls(set(), set(), set())
        for run in store.all_runs("tags.config_key IS NOT NULL"):
            key = run.data.tags["config_key"]
            (known.deleted if run.info.lifecycle_stage == "deleted" else known.runs).add(key)
            if "model" in run.data.tags:
                known.registered.add(key)
        had = {record.read().get("config_key", "") for record in records(root)
               if record.sent().get("store") == store.identity}  # fmt: skip
        known.deleted.difference_update(known.runs)
        known.deleted.update(had - known.runs)
        return known


if __name__ == "__main__":
    renamed("track", main)
