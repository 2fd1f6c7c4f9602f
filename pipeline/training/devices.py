"""The processes in which a training runs: how many, how they start and end together, and whether all have work."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from pipeline.locks import hold_cores, hold_gpus, hold_lock, visible_gpus
from pipeline.training.machines import INVITATION, follow, lead, machine_counts
from pipeline.training.open_stage import facts
from transformer.cores import cores
from transformer.training.distributed import World, join_processes
from transformer.training.launch import LAUNCHER, end_with_launcher, launch, process_count

if TYPE_CHECKING:
    from pipeline.training.job import Training


def processes() -> int:
    """How many processes the stage runs in, as DEVICES in the environment says: 1, 2, ..., gpu (one for each GPU)."""
    return process_count(os.environ.get("DEVICES") or "1")


def threads_per_process() -> int:
    """The threads of each process on CPUs: those of torch for one process; OMP_NUM_THREADS, or a share of the cores."""
    if processes() == 1:
        return torch.get_num_threads()
    return int(os.environ.get("OMP_NUM_THREADS") or max(1, cores() // processes()))


@contextmanager
def all_processes(module: str, training: Training, files: Sequence[Path] = ()) -> Iterator[World]:
    """Run the block in one process, or in as many as DEVICES and NODES say. Yields the World of this process.

    One process: it holds the training's locks and runs the block. Several: the first process holds the locks, starts
    the others, which run the block, and exits here with their status; if it ends earlier, so do they. Started by
    torchrun: the process of rank 0 holds the locks, and all run the block. Several machines (docs/cluster.md): this
    happens on each, but other machines than the leader's hold no locks except those of GPUs.
    files: what the block reads besides the files of the training. They must be equal on all machines.
    """
    folder = training.folder  # asked for before the block imports more modules, which would change the training's key
    by_torchrun = int(os.environ.get("WORLD_SIZE", 1)) > 1 and LAUNCHER not in os.environ
    if LAUNCHER in os.environ or (by_torchrun and os.environ.get("RANK") != "0"):
        end_with_launcher()
        with join_processes() as world:
            yield world
        return
    count, threads = 1 if by_torchrun else processes(), threads_per_process()
    counts = machine_counts("1" if by_torchrun else os.environ.get("NODES") or "1")
    start = partial(launch, module, count, threads, sys.argv[1:])
    # On NVIDIA's GPUs, torch is asked after hold_gpus: CUDA starts then, and sees only the GPUs that are held.
    on_gpu = bool(torch.version.cuda and visible_gpus()) or torch.cuda.is_available()
    if INVITATION in os.environ:
        with hold_gpus(count) if on_gpu else nullcontext():
            sys.exit(follow(facts(training.identity, files, on_gpu), start))
    training.check()
    folder.mkdir(parents=True, exist_ok=True)
    if not on_gpu and count > cores():
        print(f"DEVICES={count} starts {count} processes on {cores()} cores. More than {cores()} are not faster.")
    own = nullcontext() if by_torchrun and on_gpu else hold_gpus(count) if on_gpu else hold_cores(count * threads)
    with hold_lock(folder / "lock"), own:
        if counts[1] > 1:
            sys.exit(lead(module, training.params, facts(training.identity, files, on_gpu), counts, start))
        if count > 1:
            sys.exit(start())
        with join_processes() as world:
            yield world
