"""The process that a run belongs to: the `dvc` that runs its stages, or a stage that was started without DVC."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TypedDict

import psutil


class Owner(TypedDict):
    """A process of a host. start: seconds since 1970; the next process with the same pid has another."""

    host: str
    pid: int
    start: float


def owner() -> Owner:
    """The nearest `dvc` above this process, else this process itself."""
    own = psutil.Process()
    found = next((parent for parent in own.parents() if is_dvc(parent)), own)
    return {"host": platform.node(), "pid": found.pid, "start": found.create_time()}


def is_dvc(process: psutil.Process) -> bool:
    """Whether a process is DVC, started by its name or by `python -m dvc`."""
    try:
        return any(Path(word).name == "dvc" for word in process.cmdline()[:3])
    except psutil.Error:  # it has ended, or belongs to another user
        return False


def is_same(one: Owner, other: Owner) -> bool:
    """Whether two owners are the same process. Its start is known to a second, since it is counted from the boot."""
    return (one["host"], one["pid"]) == (other["host"], other["pid"]) and abs(one["start"] - other["start"]) < 2


def has_ended(one: Owner) -> bool:
    """Whether an owner has ended, as far as it can be known: False for one of another host."""
    if one["host"] != platform.node():
        return False
    try:
        start = psutil.Process(one["pid"]).create_time()
        return not is_same(one, {**one, "start": start})
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False
