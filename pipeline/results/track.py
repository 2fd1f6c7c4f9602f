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

from pipeline.tracking.content import finished_run, origin, run_keys
from pipeline.tracking.open_runs import close_abandoned
from pipeline.tracking.registry import NOT_COMPARED, register_model
from pipeline.tracking.store import Store, connect, reason, store_errors, who
from pipeline.tracking.write import write_run
from pipeline.workflow.dvc_lock import Result, stored_results
from pipeline.workflow.stage import project_root

LEFT_OUT = "left out (stale, or not in DVC's cache)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--history", action="store_true", help="also write runs for results of all other commits")
    history = parser.parse_args().history
    try:
        counts = rebuild(project_root(), history)
    except store_errors() as error:
        raise ValueError(f"MLflow took no runs: {reason(error)}") from None
    print(", ".join(f"{count} {what}" for what, count in counts.items() if count) or "There are no results yet.")


def rebuild(root: Path, history: bool = False) -> Counter[str]:
    """Write the runs that are missing and register their models. Returns numbers of runs. Raises store errors."""
    store, counts, keys = connect(root), Counter[str](), set[str]()
    close_abandoned(store)
    for results, tags in [*stored_results(history), (Result(), origin())]:
        try:
            results.entries()
            _, config_key = run_keys(results)
            if config_key not in keys:
                counts[write(store, results, tags, config_key)] += 1
            keys.add(config_key)
        except (ValueError, KeyError, FileNotFoundError) as error:
            if isinstance(results, Result):
                continue  # not run yet, or edited since
            counts[LEFT_OUT] += 1
            if "DVC_EXP_NAME" in tags:  # not for commits: a long history has many that were never pulled
                print(f"{results.name} was left out: {error}", file=sys.stderr)
    return counts


def write(store: Store, results: Result, tags: dict[str, str], config_key: str) -> str:
    """Write the run of a configuration if it is missing, and register its model if that is; returns what was done."""
    search = f"tags.config_key = '{config_key}'"
    runs = store.search(search)
    if not runs and store.search(search, deleted=True):
        return "in MLflow's trash"
    if runs and runs[0].data.tags.get("engines", NOT_COMPARED) != NOT_COMPARED:
        return "there"
    started_from = tags.get("DVC_EXP_BASELINE_REV")
    baseline = Result("baseline", started_from) if started_from else None
    finished = finished_run(results, {**who(), **tags}, baseline)
    if not runs:
        write_run(store, finished)
    register_model(store, results, finished, tags)
    return "there" if runs else "written"
