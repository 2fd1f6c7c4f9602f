"""Write the MLflow runs that are missing, as after a server was away, the database was lost, or results were pulled.

    python -m pipeline track              # the results of this clone: experiments, HEAD, work tree
    python -m pipeline track --history    # also those of all other commits that changed dvc.lock

Reads   git: DVC experiments and commits; the work tree; DVC's cache
Writes  MLflow runs and registered models. A run in MLflow's trash is not made again: restore it there, or run the stage
        `record`. A second `track` changes nothing
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from pipeline.tracking.content import config_key, origin
from pipeline.tracking.store import Store, StoreError, connect
from pipeline.tracking.write import write_missing
from pipeline.workflow.dvc_lock import NoResult, Result, stored_results
from pipeline.workflow.stage import project_root
from transformer.files import Mistake

LEFT_OUT = "left out (not in DVC's cache, or of several runs)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--history", action="store_true", help="also write runs for results of all other commits")
    history = parser.parse_args().history
    try:
        counts = rebuild(project_root(), history)
    except StoreError as error:
        raise Mistake(f"MLflow took no runs: {error}.") from None
    print(", ".join(f"{count} {what}" for what, count in counts.items() if count) or "There are no results yet.")


def rebuild(root: Path, history: bool = False) -> Counter[str]:
    """Write the runs that are missing and register their models. Returns numbers of results. Raises StoreError."""
    store, counts, keys = connect(root), Counter[str](), set[str]()
    for result, tags in [*stored_results(history), (Result(), origin())]:
        try:
            key = config_key(result)
            if key not in keys:
                counts[write(store, result, tags, key)] += 1
            keys.add(key)
        except NoResult as error:
            if "DVC_EXP_NAME" in tags:  # not for commits: a long history has many that were never pulled
                print(f"{result.name} was left out: {error}", file=sys.stderr)
            if result.commit is not None:  # a work tree may not have been run yet
                counts[LEFT_OUT] += 1
    return counts


def write(store: Store, result: Result, tags: dict[str, str], key: str) -> str:
    """Write what the store lacks of a result; returns what was done. key: its config_key."""
    search = f"tags.config_key = '{key}'"
    if not store.search(search) and store.search(search, deleted=True):
        return "in MLflow's trash"
    return "written" if write_missing(store, result, tags)[0] else "there"
