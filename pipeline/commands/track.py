"""Write the MLflow runs that are missing: after the database was lost, or for results that were pulled.

    python -m pipeline track

Reads   git: DVC experiments and commits that changed dvc.lock; the work tree; DVC's cache; work/outbox (events that
        were not sent) and work/journal (events of trainings)
Writes  MLflow runs and registered models. Runs that exist, or that are in the trash, are not changed, so a second
        `track` changes nothing
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from functools import partial
from pathlib import Path

from pipeline.shared.registration import register_model
from pipeline.shared.results import WorkTree, kept
from pipeline.shared.run_record import origin, run_contents, run_keys
from pipeline.shared.stage import project_root, renamed
from transformer.tracking.outbox import read_events, send_leftovers
from transformer.tracking.recorder import Recorder
from transformer.tracking.store import address, connect, reason, store_errors


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    try:
        counts = rebuild(project_root())
    except store_errors() as error:
        raise ValueError(f"MLflow took no runs: {reason(error)}") from None
    print(", ".join(f"{count} {what}" for what, count in counts.items()) or "There are no results yet.")


def rebuild(root: Path) -> Counter[str]:
    """Write the runs that are missing. Returns the numbers of runs there, made and left out. Raises store errors."""
    outbox = root / "work" / "outbox"
    if outbox.is_dir():
        send_leftovers(outbox, partial(Recorder, root))
    replay(root)
    (done, unregistered), seen, counts = finished(root), set[str](), Counter[str]()
    for results, tags in [*kept(), (WorkTree(), origin())]:
        try:
            if stale := results.stale():
                raise ValueError(f"it is stale: `dvc repro` would run {stale}")
            _, config_key = run_keys(results)
            if config_key in seen:
                continue
            if config_key not in unregistered | done:
                Recorder(root).send([{"event": "configuration", **run_contents(results, tags), "rebuild": True}])
            if config_key not in done:
                register_model(results, run_contents(results, tags), tags)
            counts["there" if config_key in unregistered | done else "made"] += 1
            seen.add(config_key)
        except (ValueError, KeyError, OSError) as error:
            if isinstance(results, WorkTree):
                continue  # not run yet, or edited since
            counts["left out (stale, not in DVC's cache, or of another version of this project)"] += 1
            if "DVC_EXP_NAME" in tags:  # not for commits: a long history has many that were never pulled
                print(f"{results.name} was left out: {error}", file=sys.stderr)
    return counts


def replay(root: Path) -> None:
    """Send the events of each training in work/journal that has no run in the store, not even in the trash.

    A training that is older than the store was lost with an earlier one. The run of a younger one was deleted for good.
    """
    store = connect(root)
    created = 10**6 * (store.client.get_experiment(store.experiment_id).creation_time or 0)  # ms -> ns
    for path in sorted((root / "work" / "journal").glob("*.jsonl")):
        events = list(read_events(path))
        train_key = next((event["train_key"] for event in events if event["event"] == "train"), None)
        ours = train_key and events[0].get("address") == address()
        lost = path.stat().st_mtime_ns < created  # all events were sent before this store was made
        if ours and lost and not any(store.all_runs(f"tags.train_key = '{train_key}'")):
            Recorder(root).send(events[1:])


def finished(root: Path) -> tuple[set[str], set[str]]:
    """The config_keys of two sets of runs: with a registered model, or in the trash; complete without one.

    The second set is of runs that were written when MLflow could not be reached and that the outbox completed later.
    """
    done, unregistered = set[str](), set[str]()
    store = connect(root)
    for run in store.all_runs():
        key = run.data.tags.get("config_key", "")
        if run.info.lifecycle_stage == "deleted" or "model" in run.data.tags:
            done.add(key)
        elif "dvc_score" in run.data.tags:
            unregistered.add(key)
    return done, unregistered - done


if __name__ == "__main__":
    renamed("track", main)
