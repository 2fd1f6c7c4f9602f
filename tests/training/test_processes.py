"""Processes that train together compute what one process computes."""

import itertools
import multiprocessing
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from support.tiny import tiny_trainer
from support.trainings import valid_text

from transformer.training import gradients
from transformer.training.distributed import Stopped, World, join_processes
from transformer.training.validation import valid_bleu, valid_loss


def last_of(calls: int, requests: bool) -> Callable[[], bool]:
    """A function that requests a stop at its last call of so many, if `requests`."""
    count = itertools.count(1)
    return lambda: next(count) >= calls and requests


class Result(NamedTuple):
    """What a process computed: losses of updates, validation loss and BLEU after them, whether all were stopped when
    one requested it, with unchanged weights, and the names of the threads after the processes have left each other."""

    losses: list[float]
    valid: tuple[float, float]
    stop: bool
    threads: set[str]
    early: int = 0  # sums of buckets that were started during the backward pass


def train_rank(rank, size, port, queue, folder, updates, settings, bucket_bytes=gradients.BUCKET_BYTES):
    """Train in the process `rank` of `size`; the process of rank 0 puts its Result into the queue."""
    gradients.BUCKET_BYTES = bucket_bytes
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with join_processes() as world:
        trainer = tiny_trainer(folder / f"rank{rank}of{size}", world, warmup=400, **settings)
        early, start_next = [], trainer.gradients._start_next
        trainer.gradients._start_next = lambda: (early.append(sys._getframe(1).f_code.co_name), start_next())
        losses = [float(trainer.update(step).loss) for step in range(1, updates + 1)]
        valid = valid_loss(trainer), valid_bleu(trainer, valid_text(trainer))
        before = trainer.tensors()[0]
        stopped = []
        for task in (
            lambda: trainer.update(updates + 1, last_of(1, rank == size - 1)),
            lambda: valid_loss(trainer, last_of(1, rank == size - 1)),
            lambda: valid_bleu(trainer, valid_text(trainer), last_of(2, rank == size - 1)),
        ):
            with suppress(Stopped):
                task()
                stopped.append("not stopped")
        unchanged = all(torch.equal(before[name], tensor) for name, tensor in trainer.tensors()[0].items())
        stop = unchanged and not stopped
    threads = {path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")}
    if rank == 0:
        queue.put(Result(losses, valid, stop, threads, early.count("_on_gradient")))


def train_together(size, folder, updates=100, bucket_bytes=gradients.BUCKET_BYTES, **settings) -> Result:
    """Train in `size` processes, of which the last requests a stop. Returns the result of rank 0."""
    settings = {"precision": "float64", **settings}
    spawn = multiprocessing.get_context("spawn")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    queue = spawn.Queue()
    task = (size, port, queue, folder, updates, settings, bucket_bytes)
    ranks = [spawn.Process(target=train_rank, args=(rank, *task)) for rank in range(size)]
    for process in ranks:
        process.start()
    result = queue.get(timeout=120)
    for process in ranks:
        process.join()
    return result


@pytest.fixture(scope="module")
def one_process(tmp_path_factory) -> Result:
    return train_together(1, tmp_path_factory.mktemp("one_process"))


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.full)])
def test_any_number_of_processes_gives_the_same_losses(tmp_path, one_process, size):
    result = train_together(size, tmp_path)
    assert result.losses == pytest.approx(one_process.losses, rel=1e-6)
    assert result.valid == pytest.approx(one_process.valid, rel=1e-6)
    assert result.stop  # requested by one process, known to all
    assert not [name for name in result.threads if "gloo" in name]  # a thread left over may abort Python at its exit


def test_gradients_are_summed_in_buckets_during_the_backward_pass(tmp_path, one_process):
    """Each parameter larger than a bucket is a bucket of its own; the last layers are summed first."""
    result = train_together(2, tmp_path, bucket_bytes=3000, updates=20)
    assert result.losses == pytest.approx(one_process.losses[:20], rel=1e-6)
    assert result.early > 5  # sums that were started before the backward pass had ended


def test_gradients_may_be_summed_in_bfloat16(tmp_path, one_process):
    result = train_together(2, tmp_path, updates=20, gradient_compression="bfloat16")
    assert result.losses != pytest.approx(one_process.losses[:20], rel=1e-6)
    assert result.losses == pytest.approx(one_process.losses[:20], rel=1e-2)


@pytest.mark.full
def test_any_number_of_processes_gives_the_same_losses_with_muon(tmp_path):
    one, two = (train_together(size, tmp_path / str(size), optimiser="muon") for size in (1, 2))
    assert two.losses == pytest.approx(one.losses, rel=1e-6)


def test_one_process_needs_no_network():
    assert World().sum(torch.tensor(2.0)) == 2
    assert World().from_leader("x") == "x"
