"""A model of the time of an update: products, launches, the optimiser, sums of gradients, and making batches.

Each term is one function of plain numbers. Seconds, bytes, bytes per second and FLOP per second throughout; tokens are
target tokens without padding. docs/scaling.md shows what the model is worth.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from benchmarks.flops import Size, matrix_shapes, useful_flop

SENTENCE = (
    27  # tokens of a side, </s> included: 26 words as in benchmarks/gpu_parts.py; attention is below 1% of the FLOP
)
BUCKET_BYTES = 25 * 2**20  # of the gradients in a bucket of torch's DistributedDataParallel
BACKWARD = 2 / 3  # of the FLOP of a forward and backward pass; see useful_flop


@dataclass(frozen=True)
class Shape:
    """What the model needs to know of a Transformer."""

    layers: int  # of the encoder and the decoder together
    parameters: int
    embedding: int  # of these, in the one matrix for source, target and output
    flop_per_token: float  # forward and backward, for a target token and a source token

    @classmethod
    def of(cls, size: Size, vocabulary: int) -> Shape:
        """The shape of a size with one matrix for source, target and output. Biases and norms are not counted."""
        parameters = sum(rows * columns * number for (rows, columns), number in matrix_shapes(size, vocabulary).items())
        side = np.array([SENTENCE])
        flop = useful_flop(size, vocabulary, side, side) / SENTENCE
        return cls(2 * size.layers, parameters, vocabulary * size.d_model, flop)


@dataclass(frozen=True)
class Speed:
    """What is fitted: how fast a program computes on a device, and how fast devices of a machine exchange."""

    launch: float  # seconds of the host for a forward and backward pass, per layer
    rate: float  # FLOP per second
    per_parameter: float  # seconds per parameter: the optimiser and all else that grows with the parameters
    bandwidth: float  # bytes per second between the devices of a machine
    waits: bool = False  # True: the host computes itself, as on a CPU; False: it launches work ahead, as on a GPU


@dataclass(frozen=True)
class Network:
    """The network between machines, and the number of devices in each machine."""

    bandwidth: float  # bytes per second of a machine
    latency: float = 0.0  # seconds of a message
    devices: int = 8


@dataclass(frozen=True)
class Plan:
    """How an update is spread.

    parts: target tokens in each micro-batch of the device that has most. all_parts: micro-batches of the update on all
    devices. gradient_bytes: of a gradient when it is sent. cores: of the machine, if its processes share them.
    """

    devices: int
    parts: tuple[float, ...]
    gradient_bytes: int
    network: Network | None = None  # None: all devices are in one machine
    cores: int | None = None
    overlaps: bool = False  # whether sums go on while the last micro-batch's backward pass computes
    all_parts: int = 0
    tokens: float = 0.0  # of the whole update; 0: making the batch is not counted


@dataclass(frozen=True)
class Measured:
    """An update that was timed."""

    name: str
    shape: Shape
    plan: Plan
    seconds: float


@dataclass(frozen=True)
class Input:
    """What making batches costs the host of every process."""

    list_per_token: float = 0.0  # seconds, of the list of an epoch's batches
    deal: float = 0.0  # seconds for a micro-batch and a device, to cut an update and deal its parts

    def seconds(self, plan: Plan) -> float:
        """Seconds an update. Each process lists and deals the whole update, so more devices do not lower it."""
        return self.list_per_token * plan.tokens + self.deal * plan.all_parts * plan.devices


def launch_seconds(layers: int, launch: float) -> float:
    """Seconds in which the host launches the work of a forward and backward pass."""
    return layers * launch


def product_seconds(tokens: float, flop_per_token: float, rate: float) -> float:
    """Seconds of a forward and backward pass in which the device multiplies."""
    return tokens * flop_per_token / rate


def pass_seconds(shape: Shape, speed: Speed, tokens: float) -> float:
    """Seconds of a forward and backward pass: the longer of launching and multiplying, or on a CPU both."""
    both = launch_seconds(shape.layers, speed.launch), product_seconds(tokens, shape.flop_per_token, speed.rate)
    return sum(both) if speed.waits else max(both)


def ring_traffic(nbytes: float, members: int) -> float:
    """Bytes that each member of a ring sends to sum `nbytes`: 2 (N - 1) / N of them (published.py, nccl)."""
    return 2 * (members - 1) / members * nbytes


def ring_steps(members: int) -> int:
    """Messages that follow each other in a ring: N - 1 to sum, N - 1 to spread the sum."""
    return 2 * (members - 1)


def all_reduce_seconds(shape: Shape, speed: Speed, plan: Plan) -> float:
    """Seconds to sum the gradients: a ring in each machine, and a ring of machines with the sums of each."""
    nbytes = shape.parameters * plan.gradient_bytes
    inside = min(plan.devices, plan.network.devices) if plan.network else plan.devices
    seconds = ring_traffic(nbytes, inside) / speed.bandwidth
    if plan.network and plan.devices > inside:
        machines = ceil(plan.devices / inside)
        sums = ceil(nbytes / BUCKET_BYTES)
        seconds += ring_traffic(nbytes, machines) / plan.network.bandwidth
        seconds += ring_steps(machines) * sums * plan.network.latency
    return seconds


def exposed_seconds(all_reduce: float, backward: float, last_share: float) -> float:
    """Seconds of the sums that the backward pass does not hide.

    last_share: of the bytes, in the last bucket. Its gradients are complete when the backward pass ends.
    """
    return max(all_reduce - backward, all_reduce * last_share)


def update_seconds(shape: Shape, speed: Speed, plan: Plan, batches: Input | None = None) -> float:
    """Seconds of an update. Processes that share cores take turns. batches: what making batches costs."""
    passes = [pass_seconds(shape, speed, tokens) for tokens in plan.parts]
    sums = all_reduce_seconds(shape, speed, plan)
    if plan.overlaps:  # the embedding is this trainer's last bucket: its gradient also comes from the first layer
        sums = exposed_seconds(sums, BACKWARD * passes[-1], shape.embedding / shape.parameters)
    turns = max(1.0, plan.devices / plan.cores) if plan.cores else 1.0
    computing = turns * (sum(passes) + shape.parameters * speed.per_parameter + sums)
    return computing + (batches.seconds(plan) if batches else 0.0)
