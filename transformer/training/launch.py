"""How the processes of a training are started, and how they react to SIGTERM and SIGINT."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence

import torch

# Imported here for the reason given in distributed.py.
import torch.distributed.nn
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch


def catch_stop_signals() -> list[int]:
    """From now on SIGTERM and SIGINT do not end this process. Their numbers are appended to the returned list."""
    seen: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: seen.append(number))
    return seen


def restore_stop_signals() -> None:
    """SIGTERM and SIGINT end this process again, as before `catch_stop_signals`."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def launch(module: str, processes: str, options: Sequence[str]) -> int:
    """Run a module in several processes, as torchrun does, and return the exit status.

    processes: a number, or gpu for one process on each GPU. SIGTERM and SIGINT are passed on to all processes; the
    status is then 128 + the signal. When one process fails, the others are stopped, the failure is printed and the
    status is 1. Raises ValueError for a number that is not possible here.
    """
    count = process_count(processes)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
    for name in logging.root.manager.loggerDict:
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # the message below is enough
    here = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=count, rdzv_backend="c10d",
                        rdzv_endpoint="localhost:0", run_id=str(os.getpid()), max_restarts=0)  # fmt: skip
    try:
        elastic_launch(here, sys.executable)("-m", module, *options)
    except SignalException as stopped:
        return 128 + stopped.sigval
    except ChildFailedError as failed:
        rank, failure = failed.get_first_failure()
        end = signal.Signals(-failure.exitcode).name if failure.exitcode < 0 else f"exit status {failure.exitcode}"
        print(
            f"error: Process {rank} of {count} ended first, with {end}. The other processes were stopped. "
            "Fix the error above, if there is one, and run the same command again: it resumes from the last saved "
            "state.",
            file=sys.stderr,
        )
        return 1
    return 0


def process_count(processes: str) -> int:
    """The number of processes that `processes` means: a number, or gpu for one process on each GPU.

    Raises ValueError for anything else, and for gpu on a machine without one.
    """
    if processes == "gpu":
        if not torch.cuda.is_available():
            raise ValueError("DEVICES=gpu, but torch finds no GPU. Unset DEVICES, or set it to a number of processes.")
        return torch.cuda.device_count()
    if not (processes.isdigit() and int(processes)):
        raise ValueError(
            f"DEVICES={processes!r} is not a number of processes. Set DEVICES to 1 or more, or to gpu for one process "
            "on each GPU."
        )
    return int(processes)
