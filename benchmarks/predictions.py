"""Predictions of the recipes wmt14_base and wmt14_big on many GPUs, from a fitted speed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from math import ceil
from pathlib import Path

from benchmarks.flops import Size
from benchmarks.published import OTT_LOG, TARGET_SHARE, VOCABULARY
from benchmarks.step_time import Input, Network, Plan, Shape, Speed, update_seconds
from pipeline.params import Params
from transformer.training.batches import deal

RECIPES = {size: Path(f"recipes/wmt14_{size}.yaml") for size in ("base", "big")}
GIGABIT = 1e9 / 8  # bytes
LATENCY = 20e-6  # seconds of a message between machines: assumed
NETWORKS = {f"{gigabits} Gbit/s": Network(gigabits * GIGABIT, LATENCY) for gigabits in (100, 25)}
SLACK = 1.05  # device_tokens above an even share: sentences do not fill a micro-batch to the last token
MOST_TOKENS = OTT_LOG.batch_tokens  # device_tokens that 16 GB hold of the big model in fp16, as M. Ott writes there
GRADIENT_BYTES = 4  # float32; 2 with gradient_compression: bfloat16


@dataclass(frozen=True)
class Recipe:
    """What is predicted for: the knobs of a recipe that matter here."""

    size: str
    shape: Shape
    d_model: int
    warmup: int
    batch_tokens: int
    device_tokens: int
    max_steps: int
    longest: int  # subwords of the longest side, </s> included: the least device_tokens

    @classmethod
    def load(cls, size: str) -> Recipe:
        """The recipe wmt14_<size>, with the paper's vocabulary of about 37,000 subwords."""
        params = Params.load(RECIPES[size])
        shape = Shape.of(Size(params.d_model, params.d_ff, params.heads, params.layers), VOCABULARY)
        return cls(
            size,
            shape,
            params.d_model,
            params.warmup,
            params.batch_tokens,
            params.device_tokens,
            params.max_steps,
            params.max_length + 1,
        )

    def even(self, batch_tokens: int, devices: int) -> int:
        """device_tokens that give each device one micro-batch; no fewer than the longest pair has."""
        return max(self.longest, ceil(SLACK * batch_tokens / devices))


@dataclass(frozen=True)
class Gpu:
    """A GPU and a program on it: its speed, and the relative errors that were seen."""

    name: str
    speed: Speed
    error: float  # within a machine
    error_between: float  # between machines


@dataclass(frozen=True)
class Prediction:
    """Seconds of an update, and what follows."""

    seconds: float
    tokens: float  # target tokens of an update
    error: float

    @property
    def tokens_per_second(self) -> float:
        """Target tokens per second of all devices."""
        return self.tokens / self.seconds

    def hours(self, steps: float) -> float:
        """Hours for so many updates."""
        return steps * self.seconds / 3600

    def interval(self, steps: float) -> tuple[float, float]:
        """Hours for so many updates, if predicted / real - 1 is between -error and error."""
        return self.hours(steps) / (1 + self.error), self.hours(steps) / (1 - self.error)


def plan(batch_tokens: int, device_tokens: int, devices: int, network: Network | None, overlaps: bool = False) -> Plan:
    """The plan of an update that this trainer cuts by device_tokens and deals to the devices."""
    full, rest = divmod(batch_tokens, device_tokens)
    sizes = [device_tokens] * full + [rest] * bool(rest)
    most = max(deal(sizes, devices), key=lambda own: sum(sizes[part] for part in own))
    parts = tuple(TARGET_SHARE * sizes[part] for part in most)
    return Plan(devices, parts, GRADIENT_BYTES, network, None, overlaps, len(sizes), TARGET_SHARE * batch_tokens)


def predict(gpu: Gpu, shape: Shape, planned: Plan, batches: Input) -> Prediction:
    """The prediction for a plan."""
    several = planned.network and planned.devices > planned.network.devices
    error = gpu.error_between if several else gpu.error
    return Prediction(update_seconds(shape, gpu.speed, planned, batches), planned.tokens, error)


def networks(devices: int) -> Iterator[tuple[str, Network]]:
    """The networks that make a difference to so many devices, with their names; "" where there is no network."""
    several = devices > next(iter(NETWORKS.values())).devices
    yield from NETWORKS.items() if several else [("", next(iter(NETWORKS.values())))]


def fixed_batch(recipe: Recipe) -> Iterator[tuple[int, int]]:
    """Devices and device_tokens for the recipe's own batch: as the recipe says, then cut evenly."""
    yield 1, recipe.device_tokens
    yield 8, recipe.device_tokens
    yield from ((devices, recipe.even(recipe.batch_tokens, devices)) for devices in (8, 64, 256))


def stops_paying(gpu: Gpu, recipe: Recipe, batches: Input, network: Network, saving: float = 0.1) -> int:
    """The number of GPUs, a power of two, whose double makes an update of the recipe's batch less than 10% shorter."""

    def seconds(devices: int) -> float:
        turns = next(turns for turns in count(1) if recipe.even(recipe.batch_tokens, turns * devices) <= MOST_TOKENS)
        cut = recipe.even(recipe.batch_tokens, turns * devices)
        return predict(gpu, recipe.shape, plan(recipe.batch_tokens, cut, devices, network), batches).seconds

    devices = 1
    while devices < 1024 and seconds(2 * devices) < (1 - saving) * seconds(devices):
        devices *= 2
    return devices


def rate_factor(peak: float, d_model: int, warmup: int) -> float:
    """lr_factor for a learning rate that peaks at `peak`, after `warmup` updates (equation 3)."""
    return peak * (d_model * warmup) ** 0.5
