"""A function run in several processes that train together."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from support.servers import free_port

from transformer.training.distributed import World, join_processes


def run_rank(rank: int, size: int, port: int, gpus: bool, queue, task: Callable, arguments: tuple) -> None:
    """Run a task in the process `rank` of `size` and put (rank, result, error) into the queue."""
    if not gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    try:
        with join_processes() as world:
            result = task(world, *arguments)
        threads = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
        assert not [name for name in threads if "gloo" in name]  # a thread left over may abort Python at its exit
        queue.put((rank, result, None))
    except BaseException:  # pytest's failures too
        queue.put((rank, None, traceback.format_exc()))


def together(size: int, task: Callable[..., Any], *arguments: Any, gpus: bool = False) -> list[Any]:
    """The results of task(world, *arguments) in `size` processes, in order of rank; in this process if size is 1.

    The task is a function of a module; results must not be tensors. gpus: whether each process has a GPU of its own.
    Fails with the error of the first process that has one.
    """
    if size == 1:
        return [task(World(), *arguments)]
    spawn = multiprocessing.get_context("spawn")
    queue = spawn.Queue()
    shared = (size, free_port(), gpus, queue, task, arguments)
    ranks = [spawn.Process(target=run_rank, args=(rank, *shared)) for rank in range(size)]
    for process in ranks:
        process.start()
    results = {}
    for _ in ranks:
        rank, result, error = queue.get(timeout=500)
        assert error is None, error
        results[rank] = result
    for process in ranks:
        process.join()
    return [results[rank] for rank in range(size)]
