"""The copy task: sequences of numbers that a model must repeat."""

from __future__ import annotations

import random

from transformer.corpora.parallel_text import Listed, ParallelText

COPY_SEED = 2017  # a constant, because built-in corpora never change; the knob `seed` is for training only


def copy_corpus() -> dict[str, list[ParallelText]]:
    """The first example of The Annotated Transformer: sequences of ten numbers from 1 to 10, each its own translation.

    2,000 train, 200 valid and 200 test lines, all different. The first line of test is 1 2 3 4 5 6 7 8 9 10.
    """
    chance = random.Random(COPY_SEED)
    lines = ["1 2 3 4 5 6 7 8 9 10"]
    while len(lines) < 2400:
        line = " ".join(str(chance.randint(1, 10)) for _ in range(10))
        if line not in lines:
            lines.append(line)
    parts = {"train": lines[400:], "valid": lines[200:400], "test": lines[:200]}
    return {split: [Listed("copy", [(line, line) for line in some])] for split, some in parts.items()}
