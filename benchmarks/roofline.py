"""The share of its roofline that an update of this project's trainer reaches.

    python -m benchmarks.roofline --size tiny

The roofline is the shortest time that an update of these operations can take on this machine: all products of matrices
at the rate at which torch multiplies matrices of the model's shapes, then what every other operation reads and writes,
once, at the rate at which torch copies memory. Random numbers and Python are not counted.
"""

from __future__ import annotations

import argparse
import time
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.flops import SIZES
from benchmarks.matrices import MatrixRate
from benchmarks.profile import WARM, is_product, seconds_of
from benchmarks.programs import Ours, add_data_options, fastest_precision
from benchmarks.worker import task_of
from pipeline.workflow.stage import require, run

COPIED = 2**24  # numbers in the tensor that measures the copy rate: 64 MiB, more than caches hold
# These read the rows that they return, not all of the first tensor.
ROWS = ("embedding", "index_select", "gather", "index")
NOTHING = ("empty", "empty_like", "new_empty", "empty_strided", "detach", "_local_scalar_dense")


class Traffic(TorchDispatchMode):
    """Adds up, in `moved`, the bytes that operations other than products read and write."""

    moved = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if not (func.is_view or name in NOTHING or is_product(f"aten::{name}")):
            self.moved += traffic(name, args, result)
        return result


def traffic(name: str, args: Any, result: Any) -> int:
    """The bytes that an operation moves: its arguments and its results once, what it changes in place twice."""
    read, written = tensors(args), tensors(result)
    if name in ROWS:
        read = [*read[1:], *written]
    if name.startswith("_fused_adam"):  # of weights, gradients and two moments all but the gradients are changed
        return round(size(read) * 7 / 4)
    return size(read) + size(written)


def tensors(values: Any) -> list[Tensor]:
    """The tensors in nested values."""
    return [value for value in tree_leaves(values) if isinstance(value, Tensor)]


def size(values: list[Tensor]) -> int:
    """The bytes of tensors."""
    return sum(value.numel() * value.element_size() for value in values)


def copy_rate(times: int = 5) -> float:
    """Bytes per second, read and written, at which torch copies a large tensor: the best of some times."""
    tensor, rates = torch.zeros(COPIED), []
    copy = tensor.clone()
    for _ in range(times):
        start = time.perf_counter()
        copy.copy_(tensor)
        rates.append(2 * COPIED * tensor.element_size() / (time.perf_counter() - start))
    return max(rates)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add_data_options(parser)
    add("--size", choices=[*SIZES], default="tiny")
    add("--updates", type=int, default=10, metavar="N", help="updates of a round")
    add("--rounds", type=int, default=5, metavar="N", help="rounds of updates, products and copies in alternation")
    asked = parser.parse_args()
    require(asked.ids, asked.vocab)
    precision = fastest_precision(torch.device("cpu"))
    task = task_of(vars(asked) | {"precision": precision, "device": "cpu"})
    program, matrices = Ours(task), MatrixRate(task)
    for step in range(1, WARM + 1):
        program.update(step)
    # the same updates in each round, so that counted and timed updates are of equal batches
    with FlopCounterMode(display=False) as products, Traffic() as rest:
        seconds_of(program, asked.updates)
    flop, moved = products.get_total_flops() / asked.updates, rest.moved / asked.updates
    rounds = []
    for _ in range(asked.rounds):
        rate = matrices.round(1.0)
        multiplying, copying = flop * rate["seconds"] / rate["flop"], moved / copy_rate()
        rounds.append((seconds_of(program, asked.updates), multiplying, copying))
    update, multiplying, copying = (1000 * median(part) for part in zip(*rounds, strict=True))
    share = median((multiplying + copying) / update for update, multiplying, copying in rounds)
    print(f"{asked.size}, {precision}, {asked.batch_tokens:,} tokens: an update takes {update:,.0f} ms")
    print(f"{flop / 1e9:,.1f} GFLOP of products take {multiplying:,.0f} ms at the matrix rate")
    print(f"{moved / 1e6:,.0f} MB of other operations take {copying:,.0f} ms at the copy rate")
    print(f"share of the roofline: {share:.0%}")


if __name__ == "__main__":
    run(main)
