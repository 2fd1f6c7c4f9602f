"""The process of one training program. It prints when it is ready, then answers each line of stdin, in JSON.

Command {"command": "round", "first": 1, "seconds": 10}: make whole updates after update 1 for 10 seconds
Answer  a JSON object; {"error": ...} if the program cannot be run
"""

from __future__ import annotations

import ctypes
import resource
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.processes import serve
from benchmarks.programs import SIZES, Compiled, Ours, Program, Task, TorchBaseline, synchronise
from transformer.text.pairs import Pairs
from transformer.text.vocabulary import Vocabulary

KINDS = {"ours": Ours, "compiled": Compiled, "torch": TorchBaseline}


def task_of(setting: dict) -> Task:
    """The task that a setting describes."""
    return Task(
        size=SIZES[setting["size"]],
        vocabulary=len(Vocabulary.load(Path(setting["vocab"]))),
        pairs=Pairs.load(Path(setting["ids"]), "train"),
        batch_tokens=setting["batch_tokens"],
        precision=setting["precision"],
        device=torch.device(setting["device"]),
    )


def peak_memory(device: torch.device) -> int:
    """Most bytes that this process held at one time: of tensors on a GPU, else resident memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    status = Path("/proc/self/status")
    if status.exists():  # getrusage also counts the memory of the parent process
        return next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if "VmHWM" in line)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def updates(program: Program, first: int, seconds: float) -> dict[str, float]:
    """Make whole updates for `seconds`, and return counts and seconds.

    Not timed: the list of an epoch's batches, and update `first`, which allocates memory.
    """
    program.update(first)
    task, step, lists = program.task, first + 1, 0.0
    synchronise(task.device)
    counts = dict.fromkeys(("updates", "target_tokens"), 0.0)
    start = time.perf_counter()
    while not counts["updates"] or time.perf_counter() - start - lists < seconds:
        asked = time.perf_counter()
        rows = program.rows(step)
        lists += time.perf_counter() - asked
        program.update(step)
        seen = 1, task.pairs.target_lengths[rows].sum()
        counts = {name: total + float(more) for (name, total), more in zip(counts.items(), seen, strict=True)}
        step += 1
    synchronise(task.device)  # not after each update: a training does not wait for the device either
    return counts | {"seconds": time.perf_counter() - start - lists, "memory": peak_memory(task.device)}


def release() -> None:
    """Return freed memory to the system, so that many large programs can wait at the same time."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)


def prepare(setting: dict) -> Callable[[dict], dict]:
    """Build the program that a setting describes, and return the function that answers its commands."""
    program = KINDS[setting["program"]](task_of(setting))

    def answer(command: dict) -> dict:
        counts = updates(program, command["first"], command["seconds"])
        release()
        return counts

    return answer


if __name__ == "__main__":
    serve(prepare)
