"""Rebuild the MLflow rows that are missing: after a lost database, or for results that were pulled.

    python -m pipeline track

Reads DVC's experiments, the commits that changed dvc.lock, the work tree, DVC's cache, and work/: what was never sent,
and the journal of trainings. A row that is there, or in the trash, is left alone, so a second run changes nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from functools import partial
from pathlib import Path

from pipeline.shared.results import WorkTree, kept
from pipeline.shared.run_record import origin, register_model, run_contents, run_keys
from pipeline.shared.stage import project_root, renamed
from transformer.tracking.outbox import read_events, send_leftovers
from transformer.tracking.recorder import Recorder
from transformer.tracking.store import address, connect, reason, store_errors


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    try:
        told = rebuild(project_root())
    except store_errors() as error:
        raise ValueError(f"MLflow cannot be written: {reason(error)}") from None
    print(", ".join(f"{count} {what}" for what, count in told.items()) or "nothing to track: no results here yet")


def rebuild(root: Path) -> Counter[str]:
    """Make the rows that are missing; how many were made, were there, could not be read. Raises store errors."""
    outbox = root / "work" / "outbox"
    if outbox.is_dir():
        send_leftovers(outbox, partial(Recorder, root))
    replay(root)
    there, told = finished(root), Counter()
    for results, tags in [*kept(), (WorkTree(), origin())]:
        try:
            if results.stale():
                continue
            _, config_key = run_keys(results)
            if config_key in there:
                told["there"] += there[config_key] == 0
                there[config_key] += 1
                continue
            contents = run_contents(results, tags)
            Recorder(root).send([{"event": "configuration", **contents, "rebuild": True}])
            register_model(results, contents, tags)
            there[config_key] = 1
            told["made"] += 1
        except (ValueError, KeyError, OSError) as error:
            told["left out (not in DVC's cache, or of another version of this project)"] += 1
            if "DVC_EXP_NAME" in tags:  # old commits are many
                print(f"{results.name} is left out: {error}", file=sys.stderr)
    return told


def replay(root: Path) -> None:
    """Write the trainings of work/journal again of which the store knows nothing, not even in the trash."""
    store = connect(root)
    for path in sorted((root / "work" / "journal").glob("*.jsonl")):
        events = list(read_events(path))
        train_key = next((event["train_key"] for event in events if event["event"] == "train"), None)
        ours = train_key and events[0].get("address") == address()
        if ours and not any(store.all_runs(f"tags.train_key = '{train_key}'")):
            Recorder(root).send(events[1:])


def finished(root: Path) -> Counter[str]:
    """The config_key of each row that has all there is, or that is in the trash; each counted 0 times."""
    rows = connect(root).all_runs()
    done = [row for row in rows if "dvc_score" in row.data.tags or row.info.lifecycle_stage == "deleted"]
    return Counter({row.data.tags.get("config_key", ""): 0 for row in done})


if __name__ == "__main__":
    renamed("track", main)
