"""Updates of this project's trainer on 1, 2 and 4 processes of this machine, timed; and what making batches costs.

Groups of 1, 2 and 4 processes, which sum gradients with gloo, take turns for some rounds. A process has one thread. All
pairs are equally long, so that each process has one micro-batch without padding. The module is also what the processes
run; see benchmarks.processes.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
import torch
import torch.distributed as dist

from benchmarks.flops import SMOOTHING, Size
from benchmarks.processes import Worker, serve
from transformer.model.config import TransformerConfig
from transformer.model.transformer import Transformer
from transformer.text.pairs import Pairs
from transformer.training.batches import deal, global_batches, micro_batches, padded_tokens
from transformer.training.config import TrainConfig
from transformer.training.distributed import World
from transformer.training.process import prepare_process
from transformer.training.train_step import Trainer, seed_everything

PROCESSES = (1, 2, 4)
LENGTH = 20  # subwords of each side, </s> included
PAIRS = 1_000_000  # of the batch list
UPDATES = 3  # in a round


@dataclass(frozen=True)
class Work:
    """What is trained: the size of the model, its vocabulary, and the tokens of a side for each process."""

    size: Size
    vocabulary: int
    tokens: int


SMALL = Size(128, 512, 4, 2)
WORKS = (
    Work(SMALL, 4000, 200),
    Work(SMALL, 4000, 1000),
    Work(Size(128, 512, 4, 6), 4000, 200),
    Work(Size(256, 1024, 4, 2), 16_000, 100),
    Work(Size(256, 1024, 4, 2), 16_000, 400),
)


def trainer(work: Work, folder: Path, world: World) -> Trainer:
    """A trainer of random pairs, in float32 without dropout, with a micro-batch for each process."""
    chance = np.random.default_rng(1)
    ids = chance.integers(4, work.vocabulary, (2, 4 * work.tokens * world.size // LENGTH, LENGTH - 1)).tolist()
    folder.mkdir(parents=True)
    Pairs.save_rows(folder, "train", zip(*ids, range(1, len(ids[0]) + 1), strict=True), work.vocabulary)
    seed_everything(1)
    sizes = TransformerConfig(
        **asdict(work.size),
        vocabulary=work.vocabulary,
        max_positions=LENGTH + 1,
        dropout=0.0,
        norm="pre",
        positions="sinusoidal",
        tie_embeddings=True,
    )
    config = TrainConfig(
        seed=1,
        batch_tokens=work.tokens * world.size,
        device_tokens=work.tokens,
        max_steps=0,
        warmup=4000,
        lr_factor=1.0,
        optimiser="adam",
        muon_factor=2.0,
        adam_beta1=0.9,
        adam_beta2=0.98,
        adam_epsilon=1e-9,
        clip_norm=0.0,
        gradient_compression="none",
        label_smoothing=SMOOTHING,
        ema_decay=0.0,
        precision="float32",
        deterministic=False,
        compile=False,
        log_every=1,
        save_every=1,
        keep=1,
        patience=0,
        best_by="loss",
    )
    pairs = Pairs.load(folder, "train")
    return Trainer(Transformer(sizes), pairs, pairs, world, config)


def prepare(setting: dict) -> Callable[[dict], dict]:
    """Join the group of processes, build a trainer of each work, and return the function that times updates of one."""
    torch.set_num_threads(1)
    prepare_process()
    if setting["processes"] > 1:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{setting['folder']}/meeting",
            rank=setting["rank"],
            world_size=setting["processes"],
        )
    world = World(setting["rank"], setting["processes"])
    folder = Path(setting["folder"], str(setting["rank"]))
    works = [Work(Size(**work.pop("size")), **work) for work in setting["works"]]
    trainers = [trainer(work, folder / str(number), world) for number, work in enumerate(works)]

    def answer(command: dict) -> dict:
        made = trainers[command["work"]]
        world.wait()
        times = []
        for step in range(command["first"], command["first"] + command["updates"]):
            start = time.perf_counter()
            made.update(step)
            times.append(time.perf_counter() - start)
        return {"seconds": median(times)}

    return answer


@contextmanager
def groups(works: Sequence[Work]) -> Iterator[list[list[Worker]]]:
    """Start the groups of processes. Each group is a list of workers."""
    started: list[Worker] = []
    with tempfile.TemporaryDirectory() as name:
        try:
            for processes in PROCESSES:
                folder = Path(name, str(processes))
                folder.mkdir()
                asked = {
                    "worker": "benchmarks.step_measure",
                    "program": "ours",
                    "processes": processes,
                    "folder": str(folder),
                    "works": [asdict(work) for work in works],
                }
                group = [Worker(asked | {"rank": rank}) for rank in range(processes)]
                started += group
                for worker in group:
                    worker.receive()
            ends = np.cumsum(PROCESSES).tolist()
            yield [started[end - processes : end] for end, processes in zip(ends, PROCESSES, strict=True)]
        finally:
            for worker in started:
                worker.close()


def seconds_of(group: Sequence[Worker], **command: int) -> float:
    """Seconds of an update of a group: those of its slowest process."""
    for worker in group:
        worker.send("updates", **command)
    return max(worker.receive()["seconds"] for worker in group)


def measure(rounds: int, seconds_at_most: float = 180, works: Sequence[Work] = WORKS) -> list[dict]:
    """The seconds of an update of each work on each number of processes: those of the fastest round.

    Another computation of the machine only makes a round slower, so the fastest is the least disturbed. No round starts
    after `seconds_at_most`, but the first.
    """
    with groups(works) as started:
        times: dict[tuple[int, int], list[float]] = {}
        begin = time.monotonic()
        for number in range(rounds):
            if number and time.monotonic() - begin > seconds_at_most:
                break
            for place in range(len(works)):
                for group in started:
                    first = 1 + number * UPDATES
                    seconds = seconds_of(group, work=place, first=first, updates=UPDATES)
                    times.setdefault((place, len(group)), []).append(seconds)
    return [
        {
            "processes": processes,
            **asdict(works[place]),
            "rounds": len(found),
            "seconds": min(found),
            "median": median(found),
        }
        for (place, processes), found in times.items()
    ]


@contextmanager
def long_corpus(pairs: int) -> Iterator[Pairs]:
    """Pairs as long as those of WMT14 (see benchmarks.gpu_parts), whose ids are all the same."""
    chance = np.random.default_rng(1)
    source = np.clip(chance.lognormal(3.1, 0.65, pairs), 1, 249).astype(np.int64)
    target = np.clip(source * chance.normal(1.0, 0.15, pairs), 1, 249).astype(np.int64)
    with tempfile.TemporaryDirectory() as name:
        for side, lengths in (("source", source + 1), ("target", target + 1)):
            np.save(Path(name, f"train.{side}.ids.npy"), np.full(int(lengths.sum()), 4, np.uint16))
            np.save(Path(name, f"train.{side}.starts.npy"), np.concatenate([[0], np.cumsum(lengths)]))
        np.save(Path(name, "train.lines.npy"), np.arange(1, pairs + 1))
        yield Pairs.load(Path(name), "train")


def input_costs(plans: Sequence[tuple[int, int, int]], pairs: int = PAIRS, rounds: int = 2) -> list[dict]:
    """What making batches costs one process, for (devices, batch_tokens, device_tokens), in seconds of a processor.

    list_seconds: of the list of an epoch. deal_seconds: to cut an update and deal its parts to the devices, the
    median. busiest: tokens of the device that has most, divided by the mean over all devices.
    """
    with long_corpus(pairs) as corpus:
        return [input_cost(corpus, *plan, rounds) for plan in plans]


def input_cost(corpus: Pairs, devices: int, batch_tokens: int, device_tokens: int, rounds: int) -> dict:
    """A row of `input_costs`."""
    lists, deals, parts, most = [], [], [], []
    batches: list[np.ndarray] = []
    for epoch in range(rounds):
        start = time.process_time()
        batches = global_batches(corpus, 1, epoch, batch_tokens)
        lists.append(time.process_time() - start)
    for rows in batches[:20]:
        start = time.process_time()
        cut = micro_batches(corpus, rows, device_tokens)
        tokens = padded_tokens(corpus, cut)
        dealt = deal(tokens, devices)
        deals.append(time.process_time() - start)
        parts.append(len(cut))
        most.append(max(sum(tokens[part] for part in own) for own in dealt) * devices / sum(tokens))
    return {
        "devices": devices,
        "batch_tokens": batch_tokens,
        "device_tokens": device_tokens,
        "pairs": len(corpus),
        "target_tokens": int(corpus.target_lengths.sum()),
        "list_seconds": min(lists),
        "deal_seconds": median(deals),
        "parts": float(np.mean(parts)),
        "busiest": float(np.mean(most)),
    }


def machine() -> dict:
    """What the numbers are measured on. load: how many processes compute or wait for a core, before the measurement."""
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "torch": torch.__version__,
        "load": round(os.getloadavg()[0], 1),
    }


if __name__ == "__main__":
    serve(prepare)
