"""Runs that are not finished: to which process each belongs, and what becomes of those whose process has ended."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from pipeline.tracking.store import Store
from transformer.files import sha256_text

if TYPE_CHECKING:
    from mlflow.entities import Run

PROCESS = "process"  # the tag of a run that names its process


def owner() -> str:
    """Host, pid and start of the process that a run belongs to.

    That is the nearest `dvc` above this process, which runs the stages up to `record`; without DVC this process.
    """
    process = psutil.Process()
    process = next((parent for parent in process.parents() if is_dvc(parent)), process)
    return f"{platform.node()} {process.pid} {process.create_time():.0f}"


def is_dvc(process: psutil.Process) -> bool:
    """Whether a process is DVC, started by its name or by `python -m dvc`."""
    try:
        return any(Path(word).name == "dvc" for word in process.cmdline()[:3])
    except psutil.Error:  # it has ended, or belongs to another user
        return False


def has_ended(process: str) -> bool:
    """Whether a process that `owner` named has ended, as far as it can be known: False on another host."""
    try:
        host, pid, start = process.rsplit(" ", 2)
        if host != platform.node():
            return False
        return abs(psutil.Process(int(pid)).create_time() - float(start)) > 2  # a later process with the same pid
    except psutil.NoSuchProcess:
        return True
    except (psutil.AccessDenied, ValueError):  # a tag that somebody edited
        return False


def close_abandoned(store: Store) -> None:
    """Set KILLED, at the time of its last point, for each run whose process has ended on this machine."""
    for run in store.search(f"attributes.status = 'RUNNING' and tags.{PROCESS} IS NOT NULL"):
        if has_ended(run.data.tags[PROCESS]):
            times = [point.timestamp for point in store.client.get_metric_history(run.info.run_id, "train_loss")]
            store.client.set_terminated(run.info.run_id, "KILLED", max(times, default=run.info.start_time))


def run_tags(store: Store, train_key: str, params: Mapping[str, object]) -> dict[str, str]:
    """The tags by which this clone finds the run of a training with these params.

    They hold a hash of the params, since a run has its tags from the first moment and its params a little later.
    """
    text = json.dumps({name: str(value) for name, value in params.items()}, sort_keys=True)
    return {"train_key": train_key, "params_key": sha256_text(text), "clone": store.clone}


def open_runs(store: Store, train_key: str, params: Mapping[str, object]) -> list[Run]:
    """This clone's unfinished runs (no config_key yet) with this train_key and these params, the oldest first."""
    tags = run_tags(store, train_key, params)
    runs = [run for run in store.runs(train_key) if "config_key" not in run.data.tags and has(run, tags)]
    return sorted(runs, key=age)


def has(run: Run, tags: Mapping[str, str]) -> bool:
    """Whether a run has these tags."""
    return all(run.data.tags.get(name) == value for name, value in tags.items())


def age(run: Run) -> tuple[int, str]:
    """What runs are sorted by, the first one first: in the same order for all clones."""
    return run.info.start_time, run.info.run_id
