"""How fast this machine multiplies matrices of a model's shapes: the upper limit for every program."""

from __future__ import annotations

import time

import torch

from benchmarks.flops import matrix_shapes
from benchmarks.programs import Task, synchronise


class MatrixRate:
    """The products x W^T (forward), g W (gradient) and g^T x (weight gradient) of every matrix, for one batch."""

    def __init__(self, task: Task):
        self.task, self.dtype = task, getattr(torch, task.precision)
        self.shapes = matrix_shapes(task.size, task.vocabulary)
        for shape in self.shapes:
            self.seconds_of(shape)

    def round(self, seconds: float) -> dict[str, float]:
        """Multiply for at least `seconds`, and return the FLOP and the seconds that they took."""
        flop = spent = 0.0
        end = time.perf_counter() + seconds
        while not flop or time.perf_counter() < end:
            for (rows, columns), number in self.shapes.items():
                flop += number * 6 * self.task.batch_tokens * rows * columns
                spent += number * self.seconds_of((rows, columns))
        return {"flop": flop, "seconds": spent}

    def seconds_of(self, shape: tuple[int, int]) -> float:
        """Seconds of the three products with one matrix (rows, columns)."""
        rows, columns = shape
        tokens, place = self.task.batch_tokens, {"dtype": self.dtype, "device": self.task.device}
        x, slope, weight = (torch.randn(*s, **place) for s in ((tokens, columns), (tokens, rows), shape))
        outs = [torch.zeros_like(tensor) for tensor in (slope, x, weight)]
        synchronise(self.task.device)
        start = time.perf_counter()
        torch.mm(x, weight.T, out=outs[0])
        torch.mm(slope, weight, out=outs[1])
        torch.mm(slope.T, x, out=outs[2])
        synchronise(self.task.device)
        return time.perf_counter() - start
