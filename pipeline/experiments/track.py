"""Send to MLflow what work/runs has for it, and write the runs that are missing.

Runs are missing after the database was lost, and for results that were pulled.

    python -m pipeline track
    python -m pipeline track --all    # also runs for an MLflow at another address, or that a restored backup lacks

Reads   work/runs (the records of runs); git: DVC experiments and commits that changed dvc.lock; the work tree; DVC's
        cache
Writes  MLflow runs and registered models; work/runs. A run that you deleted is not made again. A second `track` changes
        nothing
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from pipeline.experiments.revisions import kept
from pipeline.stage import project_root
from pipeline.tracking.content import configuration_of, origin, run_keys
from pipeline.tracking.record import records
from pipeline.tracking.recorder import is_recorded, write_configuration
from pipeline.tracking.registration import register_model
from pipeline.tracking.results import WorkTree
from pipeline.tracking.seeds import renew_means
from pipeline.tracking.sender import send_waiting
from pipeline.tracking.store import Store, connect, reason, store_errors

LEFT_OUT = "left out (stale, not in DVC's cache, or of another version of this project)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = "also send runs that were made for another address of MLflow, or that a restored backup lacks"
    parser.add_argument("--all", action="store_true", help=what)
    given = parser.parse_args()
    try:
        counts = rebuild(project_root(), given.all)
    except store_errors() as error:
        raise ValueError(f"MLflow took no runs: {reason(error)}") from None
    print(", ".join(f"{count} {what}" for what, count in counts.items() if count) or "There are no results yet.")


def rebuild(root: Path, everything: bool = False) -> Counter[str]:
    """Send what records have, write the runs that are missing and register their models. Returns numbers of runs.

    everything: also send records made for another address, and those that this store had and has no more. Raises store
    errors.
    """
    store, counts = connect(root), Counter[str]({"made": 0, "there": 0, "deleted": 0})
    before, found = config_keys(store), {}
    for results, tags in [*kept(), (WorkTree(), origin())]:
        try:
            if stale := results.stale():
                raise ValueError(f"it is stale: `dvc repro` would run {stale}")
            _, config_key = run_keys(results)
            if config_key not in found:
                wanted = configuration_of(results, tags) if not before.get(config_key) else None
                found[config_key] = (results, tags, wanted)
        except (ValueError, KeyError, OSError) as error:
            if isinstance(results, WorkTree):
                continue  # not run yet, or edited since
            counts[LEFT_OUT] += 1
            if "DVC_EXP_NAME" in tags:  # not for commits: a long history has many that were never pulled
                print(f"{results.name} was left out: {error}", file=sys.stderr)
    for _, _, wanted in found.values():
        if wanted and wanted.config_key not in before and not is_recorded(root, wanted):
            write_configuration(root, wanted, pulled=True)
    for record in records(root) if everything else ():
        record.forget_sent()
        record.mark_sent("", {})  # it was sent somewhere, so runs in the trash stay there
    send_waiting(root, store, everything)
    renew_means(store)
    after = config_keys(store)
    for config_key, (results, tags, wanted) in found.items():
        if wanted and after.get(config_key) is False:
            register_model(results, wanted, tags)
            counts["models registered anew"] += 1
    counts["made"], counts["there"] = len(after.keys() - before.keys()), len(after.keys() & before.keys())
    counts["deleted"] = len(found.keys() - after.keys())
    return counts


def config_keys(store: Store) -> dict[str, bool]:
    """config_key of each run that was recorded -> whether its model is registered."""
    return {run.tags["config_key"]: "model" in run.tags for run in store.search("tags.config_key IS NOT NULL")}
