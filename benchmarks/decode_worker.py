"""The process of one translating program. It reads commands in JSON, as benchmarks/worker.py does.

Command {"command": "round", "first": 0, "seconds": 10}: translate, 4 batches per call (8 if of one sentence), for 10 s
Answer  {"sentences": ..., "target_tokens": ..., "seconds": ...}
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.decoders import KINDS, SEED, Task
from benchmarks.processes import serve
from benchmarks.programs import SIZES
from transformer.files import read_lines
from transformer.text.bpe import Merges
from transformer.text.vocabulary import Vocabulary
from transformer.text.words import Side


def sentences(setting: dict, vocabulary: Vocabulary) -> list[list[int]]:
    """The ids of each line of the text to translate."""
    side, merges = Side(setting["language"], lowercase=False), Merges.load(Path(setting["codes"]))
    lines = read_lines(Path(setting["text"]))
    return [vocabulary.ids(merges.subwords(side.tokens(line))) for line in lines]


def calls(ids: list[list[int]], batch: int) -> list[list[list[list[int]]]]:
    """The batches of each call: sentences of similar length, shuffled in the same order for all programs."""
    ordered = sorted((sentence for sentence in ids if sentence), key=len)
    batches = [ordered[start : start + batch] for start in range(0, len(ordered), batch)]
    random.Random(SEED).shuffle(batches)
    run_at_once = 4 if batch > 1 else 8
    return [batches[start : start + run_at_once] for start in range(0, len(batches), run_at_once)]


def prepare(setting: dict) -> Callable[[dict], dict]:
    """Build the program that a setting describes, and return the function that answers its commands."""
    vocabulary = Vocabulary.load(Path(setting["vocab"]))
    task = Task(
        SIZES[setting["size"]],
        len(vocabulary),
        setting["beam_size"],
        setting["batch"],
        setting["steps"],
        setting["precision"],
        torch.device(setting["device"]),
    )
    program = KINDS[setting["program"]](task)
    work = calls(sentences(setting, vocabulary), task.batch)
    program.translate_all(work[0][:1])

    def answer(command: dict) -> dict:
        done, start, place = 0, time.perf_counter(), command["first"]
        while not done or time.perf_counter() - start < command["seconds"]:
            batches = work[place % len(work)]
            program.translate_all(batches)
            done += sum(map(len, batches))
            place += 1
        if task.device.type == "cuda":
            torch.cuda.synchronize()
        return {"sentences": done, "target_tokens": done * task.steps, "seconds": time.perf_counter() - start}

    return answer


if __name__ == "__main__":
    serve(prepare)
