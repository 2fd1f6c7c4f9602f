"""Starting the processes of a training, and the signals that end it."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence

import torch

# Its functions have the group of the moment as a default argument. Imported later, as Adam does, they would keep ours,
# and its threads: one that lets go of a tensor while Python ends aborts the process.
import torch.distributed.nn
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch


def stop_signals() -> list[int]:
    """From now on SIGTERM and SIGINT end nothing: their numbers are added to the list that is returned."""
    seen: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: seen.append(number))
    return seen


def heed_signals() -> None:
    """SIGTERM and SIGINT end this process again, as before stop_signals."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def launch(module: str, processes: str, options: Sequence[str]) -> int:
    """Run a module in several processes, as torchrun does; `processes` is a number, or gpu for one on each GPU.

    Raises ValueError for a number that makes no sense here. Returns the exit status. SIGTERM and SIGINT are passed on
    to all of them; the status is then 128 + the signal. When one dies, the others are stopped and its end is told.
    """
    if not (processes.isdigit() and int(processes)) and processes != "gpu":
        raise ValueError(f"DEVICES={processes!r} must be a number of processes, or gpu for one on each GPU")
    if processes == "gpu" and not torch.cuda.is_available():
        raise ValueError("DEVICES=gpu, but torch sees no GPU here; leave DEVICES unset, or give a number of processes")
    count = torch.cuda.device_count() if processes == "gpu" else int(processes)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
    for name in logging.root.manager.loggerDict:
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # our one line says it
    here = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=count, rdzv_backend="c10d",
                        rdzv_endpoint="localhost:0", run_id=str(os.getpid()), max_restarts=0)  # fmt: skip
    try:
        elastic_launch(here, sys.executable)("-m", module, *options)
    except SignalException as stopped:
        return 128 + stopped.sigval
    except ChildFailedError as failed:
        rank, failure = failed.get_first_failure()
        end = signal.Signals(-failure.exitcode).name if failure.exitcode < 0 else f"exit status {failure.exitcode}"
        told = f"error: process {rank} of {count} ended first, with {end}; the others were stopped"
        print(f"{told}; the same command goes on from the last state saved", file=sys.stderr)
        return 1
    return 0
