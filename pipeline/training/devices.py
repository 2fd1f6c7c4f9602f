"""The processes in which a training runs: how many, on which devices, and what must be equal in all of them."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import torch
from filelock import FileLock, Timeout

from pipeline.training.job import TrainingJob
from pipeline.training.launch import LAUNCHER, LOST, Machines, launch
from pipeline.workflow.gpus import hold_gpus
from pipeline.workflow.stage import hold_lock, project_root, report_to_launcher
from transformer.cores import cores, end_with_parent
from transformer.files import Mistake
from transformer.model.cpu import multiplies_bfloat16
from transformer.training.distributed import LostConnection, World, join_processes

PACKAGES = ("ctranslate2", "numpy", "sacrebleu", "safetensors", "spacy", "subword-nmt", "torch", "torchtext")


def process_count() -> int:
    """How many processes DEVICES in the environment names: 1, 2, ..., or gpu for one on each GPU.

    Raises Mistake for anything else, and for gpu on a machine without one.
    """
    devices = os.environ.get("DEVICES") or "1"
    if devices == "gpu":
        if not torch.cuda.is_available():
            raise Mistake("DEVICES=gpu, but torch finds no GPU. Unset DEVICES, or set it to a number of processes.")
        return torch.cuda.device_count()
    if not (devices.isascii() and devices.isdecimal() and int(devices)):
        raise Mistake(
            f"DEVICES={devices!r} is not a number of processes. Set DEVICES to 1 or more, or to gpu for one process "
            "on each GPU."
        )
    return int(devices)


def threads_per_process() -> int:
    """The threads of each process on CPUs: those of torch for one process; OMP_NUM_THREADS, or a share of the cores."""
    if process_count() == 1:
        return torch.get_num_threads()
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]  # OpenMP allows a number for each nesting level
    return int(asked) if asked.isdecimal() else max(1, cores() // process_count())


def follow_first_machine(module: str) -> None:
    """On every machine but the first: wait for the first, start the training processes and exit with their status.

    The training processes read params and data only after that: the first machine may still be writing them in a shared
    folder.
    """
    machines = None if LAUNCHER in os.environ else Machines.read_environment()
    if machines and not machines.is_first:
        machines.wait_for_first()
        with hold_gpus(process_count()):
            sys.exit(launch(module, process_count(), threads_per_process(), machines))


@contextmanager
def all_processes(module: str, training: TrainingJob, machines: Machines | None = None) -> Iterator[World]:
    """Run the block in one process, or in as many as DEVICES says. Yields the World of this process.

    With one process, this process runs the block. With several, it starts them, waits, and exits with their status. If
    it is killed, they end too. machines: those that take part; None: this one alone.
    """
    if LAUNCHER in os.environ:
        with join_training(training) as world:
            yield world
        return
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise Mistake(
            f"{module} starts torchrun itself. Set DEVICES, and NODES for several machines (docs/cluster.md)."
        )
    training.check()
    count, threads = process_count(), threads_per_process()
    training.folder.mkdir(parents=True, exist_ok=True)
    with hold_lock(training.folder / "lock"), hold_gpus(count), hold_cores(count):
        if machines:
            words = " ".join(f"{name}={os.environ[name]}" for name in ("NODES", "RENDEZVOUS"))
            print(f"On each other machine run: {words} NODE_RANK=... python -m {module}", flush=True)
        if machines or count > 1:
            sys.exit(launch(module, count, threads, machines))
        with join_processes() as world:
            yield world


@contextmanager
def hold_cores(count: int) -> Iterator[None]:
    """Surround a training of `count` processes. On a processor, print a remark if it will be slow."""
    lock = FileLock(project_root() / "work" / f"cores-{platform.node()}.lock")  # machines may share the folder
    try:
        if not torch.cuda.is_available():
            if count > cores():
                print(
                    f"DEVICES={count} starts {count} processes on {cores()} cores. More than {cores()} are not faster."
                )
            lock.acquire(timeout=0)
    except Timeout:
        print("remark: another training uses the cores of this machine. Both are slow until one has ended.", flush=True)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def join_training(training: TrainingJob) -> Iterator[World]:
    """Join the other processes in one that `launch` started, and compare what the training depends on.

    The process ends with status LOST if it loses the connection to another one.
    """
    end_with_parent(int(os.environ[LAUNCHER]))
    try:
        with join_processes() as world:
            world.agree(facts_to_agree_on(training, world))
            yield world
    except LostConnection as error:
        report_to_launcher(str(error))
        sys.exit(LOST)


def facts_to_agree_on(training: TrainingJob, world: World) -> dict[str, str]:
    """What must be equal in all processes, name -> value or hash: code, data, knobs, versions and kind of device."""
    parts = training.identity.items()
    own = {f"{part} {name}": str(value) for part, values in parts for name, value in values.items()}
    if training.config.precision == "bfloat16":  # a device without it computes in float32
        own["bfloat16"] = str(multiplies_bfloat16(world.device))
    return own | {"device": world.device.type}


def environment(device: torch.device, devices: int) -> dict[str, str | int]:
    """What this process computes with: software and hardware, name -> value.

    devices: how many devices like `device` are used.
    """
    kind = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    system = {"system": platform.system(), "machine": platform.machine(), "python": platform.python_version()}
    return {
        **system,
        "cpu": processor(),
        "cores": os.cpu_count() or 0,
        "threads": torch.get_num_threads(),
        "device": kind,
        "devices": devices,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "bfloat16": "yes" if multiplies_bfloat16(device) else "no",
        **{name: version(name) for name in PACKAGES},
    }


def join_environments(environments: Sequence[Mapping[str, str | int]]) -> dict[str, str | int]:
    """The contents of reports/environment.json: each fact of the environments that made a training's updates.

    Several values are one string, because DVC shows no lists. A fact that an environment lacks is `none`.
    """
    values = {
        name: dict.fromkeys(each.get(name, "none") for each in environments) for each in environments for name in each
    }
    return {name: next(iter(each)) if len(each) == 1 else " + ".join(map(str, each)) for name, each in values.items()}


def processor() -> str:
    """The processor's model, from /proc/cpuinfo on Linux; elsewhere Python's, which may be the architecture only."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").split("\n") if cpuinfo.is_file() else []
    fields = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    names = {key.strip(): value.strip() for key, value in fields.items()}
    family = "/".join(names[key] for key in ("cpu family", "model", "stepping") if key in names)
    return f"{names['model name']} {family}".strip() if "model name" in names else platform.processor()
