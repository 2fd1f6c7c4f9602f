"""How the processes of a training are started, and how they react to SIGTERM and SIGINT."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence
from tempfile import TemporaryDirectory

import torch
from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from transformer.cores import end_with_parent
from transformer.training.failures import print_failure
from transformer.training.hosts import SECONDS_TO_SAVE, Hosts, run_agent

LAUNCHER = "TRANSFORMER_LAUNCHER_PID"  # environment variable: the process that started this one


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


def launch(module: str, count: int, threads: int, options: Sequence[str], hosts: Hosts | None = None) -> int:
    """Run a module in `count` processes of `threads` threads each, as torchrun does, and return the exit status.

    hosts: the other machines that take part, with processes of their own; None: none. SIGTERM and SIGINT are passed on
    to all processes; the status is then 128 + the signal. When one process fails, the others are stopped, what failed
    is printed once, and the status is 1. With several machines see also `run_agent`.
    """
    os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ[LAUNCHER] = str(os.getpid())
    for name in logging.root.manager.loggerDict:
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # the message below is enough
    with TemporaryDirectory() as folder:  # of the files in which processes write their errors
        here = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=count,
            rdzv_backend="c10d",
            max_restarts=0,
            rdzv_endpoint="localhost:0",
            run_id=str(os.getpid()),
            shutdown_timeout=SECONDS_TO_SAVE,
            logs_specs=DefaultLogsSpecs(log_dir=folder),
        )
        try:
            if hosts:
                for number in (signal.SIGTERM, signal.SIGINT):  # torch's agent does so only when processes run
                    signal.signal(number, raise_signal)
                return run_agent(hosts, here, ("-m", module, *options))
            elastic_launch(here, sys.executable)("-m", module, *options)
        except SignalException as stopped:
            return 128 + stopped.sigval
        except ChildFailedError as failed:
            return print_failure(failed.failures, count)
        finally:
            restore_stop_signals()  # the handlers of torch's agent would raise exceptions while this process exits
    return 0


def raise_signal(number: int, frame: object) -> None:
    """A handler of signals: raises the exception with which torch's agent ends."""
    raise SignalException(f"signal {number}", signal.Signals(number))


def end_with_launcher() -> None:
    """In a process that `launch` started: from now on this process is killed when its launcher ends.

    So the same command can be started again at once. Nothing happens in a process that was started in another way.
    """
    if launcher := int(os.environ.get(LAUNCHER, 0)):
        end_with_parent(launcher)


def process_count(processes: str) -> int:
    """The number of processes that `processes` means: a number, or gpu for one process on each GPU.

    Raises ValueError for anything else, and for gpu on a machine without one.
    """
    if processes == "gpu":
        if not torch.cuda.is_available():
            raise ValueError("DEVICES=gpu, but torch finds no GPU. Unset DEVICES, or set it to a number of processes.")
        return torch.cuda.device_count()
    if not (processes.isascii() and processes.isdecimal() and int(processes)):
        raise ValueError(
            f"DEVICES={processes!r} is not a number of processes. Set DEVICES to 1 or more, or to gpu for one process "
            "on each GPU."
        )
    return int(processes)
