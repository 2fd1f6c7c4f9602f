"""Sums of gradients over all processes, sent in buckets while the backward pass still computes the others.

The last layers have their gradients first. Each time a bucket of parameters has all its gradients, its sum is started
(Li et al. 2020, "PyTorch Distributed", section 3.2.3). All processes start the same sums in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from transformer.training.distributed import World

BUCKET_BYTES = 25_000_000  # of the gradients in a bucket; as much as in torch's DistributedDataParallel


class GradientSum:
    """The gradients of some parameters, summed over the processes of `world`. A single process sums nothing.

    compression: bfloat16 sends and sums gradients in bfloat16, half the bytes of float32; none: in their own precision.
    Two numbers are summed with them, in float64: the loss, and whether a process requests a stop.
    """

    def __init__(self, parameters: Sequence[Tensor], world: World, compression: str):
        self.world, self.compressed = world, compression == "bfloat16"
        self.buckets = in_buckets(parameters) if world.size > 1 else []
        self._bucket_of = {parameter: number for number, bucket in enumerate(self.buckets) for parameter in bucket}
        self._missing: list[int] = []  # of each bucket: gradients that are not computed yet; empty between updates
        self._started: list[tuple[Tensor, Callable[[], None]]] = []  # of each started bucket: its sum, and how to wait
        self._extras: tuple[Tensor, Callable[[], None]] | None = None
        for parameter in self._bucket_of:
            parameter.register_post_accumulate_grad_hook(self._on_gradient)

    def begin(self, loss: Tensor, stop: bool) -> None:
        """Start summing, before the last backward pass of this process in an update.

        loss: the sum of the losses of this process, a float64 scalar. stop: whether this process requests a stop.
        """
        self._extras = (torch.stack([loss, torch.full_like(loss, float(stop))]), lambda: None)
        if self.world.size > 1:
            self._extras = (self._extras[0], self.world.start_sum(self._extras[0]))
            self._missing = [len(bucket) for bucket in self.buckets]

    def finish(self) -> Tensor:
        """Wait for the sums and make them the gradients. Returns the sums of the loss and of the requests to stop."""
        while len(self._started) < len(self.buckets):  # parameters without a gradient in this process
            self._start_next()
        for bucket, (flat, wait) in zip(self.buckets, self._started, strict=True):
            wait()
            parts = flat.to(bucket[0].dtype).split([parameter.numel() for parameter in bucket])
            for parameter, part in zip(bucket, parts, strict=True):
                parameter.grad = part.view_as(parameter)
        self._missing, self._started = [], []
        assert self._extras is not None, "begin was not called"
        (extras, wait), self._extras = self._extras, None
        wait()
        return extras

    def _on_gradient(self, parameter: Tensor) -> None:
        """Called by torch when the gradient of a parameter is computed: start the buckets that are complete."""
        if self._missing:
            self._missing[self._bucket_of[parameter]] -= 1
            while len(self._started) < len(self.buckets) and not self._missing[len(self._started)]:
                self._start_next()

    def _start_next(self) -> None:
        """Start the sum of the next bucket."""
        bucket = self.buckets[len(self._started)]
        gradients = [torch.zeros_like(parameter) if parameter.grad is None else parameter.grad for parameter in bucket]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        flat = flat.to(torch.bfloat16) if self.compressed else flat
        self._started.append((flat, self.world.start_sum(flat)))


def in_buckets(parameters: Sequence[Tensor]) -> list[list[Tensor]]:
    """Parameters to buckets of at most BUCKET_BYTES, or of one parameter: the last parameters come first."""
    buckets: list[list[Tensor]] = []
    size = 0
    for parameter in reversed(parameters):
        nbytes = parameter.numel() * parameter.element_size()
        if not buckets or size + nbytes > BUCKET_BYTES:
            buckets.append([])
            size = 0
        buckets[-1].append(parameter)
        size += nbytes
    return buckets
