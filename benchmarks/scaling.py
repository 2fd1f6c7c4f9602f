"""How long the paper's models would train on 1, 8 and 64 GPUs: a roofline beside the speeds that others have published.

    python -m benchmarks.scaling        # prints the tables of docs/scaling.md

Seconds, bytes and FLOP per second throughout; tokens are target tokens without padding.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import NamedTuple

import numpy as np

from benchmarks.flops import SIZES, Size, matrix_shapes, useful_flop

SOURCES = {
    "vaswani": "https://arxiv.org/abs/1706.03762",
    "nvidia": "https://github.com/NVIDIA/DeepLearningExamples/blob/0053b4b88862846fa74df947282a079898d09125/"
    "PyTorch/Translation/Transformer/README.md",
    "lightseq": "https://github.com/bytedance/lightseq/blob/fb591f93d33fd21135c0050ebec8decedc670772/"
    "docs/training/performance.md",
    "issue 233": "https://github.com/facebookresearch/fairseq/issues/233",
    "nccl": "https://github.com/NVIDIA/nccl-tests/blob/03a204a1f38aaea17f1a777885bb2d9600ba7eff/doc/PERFORMANCE.md",
}
TARGET_SHARE = 617_000 / (128 * 5120)  # target tokens in a token of sentences x longest side (issue 233)
WORDS = 33_708  # subwords of the vocabulary of source "nvidia"; LightSeq names none, its corpus and model are the same
PAPER_WORDS = 37_000  # source "vaswani", section 5.1
SENTENCE = 27  # tokens of a side, as in benchmarks/gpu_parts.py; attention is below 1% of the FLOP
MACHINE = 8  # GPUs
LATENCY = 20e-6  # of a message between machines: an assumption
BUCKET = 25_000_000  # bytes of gradients that are summed at a time, as in torch's DistributedDataParallel


class Gpu(NamedTuple):
    """A program on a GPU: the constants with the least squares of relative errors over its rows of PUBLISHED."""

    launch: float  # seconds in which the host starts the operations of a layer, forward and backward
    rate: float  # FLOP per second
    per_parameter: float  # seconds of Adam and all else that grows with the parameters
    bandwidth: float  # bytes per second between the GPUs of a machine
    nbytes: int  # of a gradient when that program sends it


GPUS = {
    "V100, float32": Gpu(4.94e-3, 11.3e12, 0.214e-9, 31.1e9, 4),
    "V100, mixed": Gpu(0.0, 56.3e12, 0.214e-9, 129e9, 2),
    "V100, fp16": Gpu(4.94e-3, 46.5e12, 0.295e-9, 43.9e9, 2),
    "A100, fp16": Gpu(3.80e-3, 88.9e12, 0.160e-9, 43.9e9, 2),
}
NETWORKS = {"100 Gbit/s": 100e9 / 8}  # between machines


class Row(NamedTuple):
    """A published speed of fairseq: the big model on WMT14 English-German, all GPUs in one machine."""

    source: str  # key of SOURCES
    gpu: str  # key of GPUS
    layers: int  # of the encoder, and as many of the decoder
    gpus: int
    batch_tokens: int  # of a GPU: sentences x longest side, at most
    tokens_per_second: int  # of all GPUs


def rows(source: str, gpu: str, layers: int, gpus: int, speeds: dict[int, int]) -> list[Row]:
    """The rows of a column of a published table: tokens of a GPU -> tokens per second."""
    return [Row(source, gpu, layers, gpus, tokens, speed) for tokens, speed in speeds.items()]


# Left out: 75,574 tokens/s of 4 V100, mixed, 5,120 tokens (nvidia), below the same table's 4 GPUs at 2,560: a slip.
PUBLISHED = [
    *rows("lightseq", "V100, fp16", 6, 1, {512: 3781, 1024: 8031, 2048: 16061, 4096: 23451, 8192: 28794, 15000: 31753}),
    *rows("lightseq", "V100, fp16", 6, 8, {512: 26005, 1024: 58071, 2048: 106271, 4096: 167008, 8192: 208873}),
    *rows("lightseq", "V100, fp16", 6, 8, {15000: 237337}),
    *rows("lightseq", "V100, fp16", 12, 8, {512: 11616, 1024: 31628, 2048: 60279, 4096: 91947}),
    *rows("lightseq", "V100, fp16", 24, 8, {512: 7276, 1024: 15916, 2048: 32687}),
    *rows("lightseq", "A100, fp16", 6, 8, {512: 33300, 1024: 76500, 2048: 166100, 4096: 283800, 8192: 386500}),
    *rows("lightseq", "A100, fp16", 6, 8, {15000: 445600}),
    *rows("lightseq", "A100, fp16", 12, 8, {512: 20300, 1024: 42500, 2048: 91100, 4096: 162600, 8192: 204200}),
    *rows("lightseq", "A100, fp16", 24, 8, {512: 10300, 1024: 20800, 2048: 48100, 4096: 86100}),
    *rows("nvidia", "V100, mixed", 6, 1, {2560: 23821, 5120: 32153}),
    *rows("nvidia", "V100, mixed", 6, 4, {2560: 92514}),
    *rows("nvidia", "V100, mixed", 6, 8, {2560: 186442, 5120: 235077}),
    *rows("nvidia", "V100, float32", 6, 1, {2560: 7635}),
    *rows("nvidia", "V100, float32", 6, 4, {2560: 26647}),
    *rows("nvidia", "V100, float32", 6, 8, {2560: 53641}),
]


class Model(NamedTuple):
    """What the roofline needs to know of a Transformer."""

    layers: int  # of the encoder and the decoder together
    parameters: int  # but biases and norms
    flop: float  # forward and backward, for a target token and a source token


def model(size: Size, words: int) -> Model:
    """A model of a size with one matrix of `words` rows for source, target and output."""
    weights = sum(height * width * number for (height, width), number in matrix_shapes(size, words).items())
    side = np.array([SENTENCE])
    return Model(2 * size.layers, weights, useful_flop(size, words, side, side) / SENTENCE)


def compute_seconds(gpu: Gpu, model: Model, tokens: float, passes: int = 1) -> float:
    """Seconds in which a GPU computes `tokens`, cut into equal passes, and makes Adam's step.

    A pass, forward and backward, takes the longer of launching its operations and multiplying.
    """
    both = passes * model.layers * gpu.launch, tokens * model.flop / gpu.rate
    return max(both) + model.parameters * gpu.per_parameter


def sum_seconds(gpu: Gpu, nbytes: float, gpus: int, network: float = 0.0) -> float:
    """Seconds to sum gradients: a ring in each machine, then a ring of machines with a bandwidth of `network`.

    A ring of N sends 2 (N - 1) / N of the bytes (source "nccl"). network: 0 if all GPUs are in one machine.
    """
    inside, machines = (min(gpus, MACHINE), ceil(gpus / MACHINE)) if network else (gpus, 1)
    seconds = 2 * (inside - 1) / inside * nbytes / gpu.bandwidth
    if machines > 1:
        seconds += 2 * (machines - 1) / machines * nbytes / network
        seconds += 2 * (machines - 1) * ceil(nbytes / BUCKET) * LATENCY
    return seconds


def published_error(row: Row) -> float:
    """Seconds of an update by the roofline, divided by the published seconds, - 1."""
    gpu, tokens = GPUS[row.gpu], TARGET_SHARE * row.batch_tokens
    big = model(replace(SIZES["big"], layers=row.layers), WORDS)
    seconds = compute_seconds(gpu, big, tokens) + sum_seconds(gpu, gpu.nbytes * big.parameters, row.gpus)
    return seconds / (row.gpus * tokens / row.tokens_per_second) - 1


def table(head: tuple[str, ...], lines: list[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ("---",) * len(head), *lines))


def expectations(size: str, updates: int) -> str:
    """The table of a model of the paper: the time of an update and of the training, with gradients sent in float32.

    updates: of 25,000 tokens. A row with a larger batch makes fewer updates, with as many tokens together.
    """
    paper, lines = model(SIZES[size], PAPER_WORDS), []
    names = ("V100, float32", "V100, fp16", "A100, fp16")
    plans = [(1, "", 25_000, 3000), (8, "", 25_000, 3282)]
    plans += [(64, "100 Gbit/s", 25_000, 411), (64, "100 Gbit/s", 200_000, 3282)]
    for gpus, network, batch, device_tokens in plans:
        cells = []
        for name in names:
            passes = ceil(batch / gpus / device_tokens)
            seconds = compute_seconds(GPUS[name], paper, TARGET_SHARE * batch / gpus, passes)
            seconds += sum_seconds(GPUS[name], 4 * paper.parameters, gpus, NETWORKS.get(network, 0.0))
            cells.append(f"{1000 * seconds:,.0f} ms, {updates * 25_000 / batch * seconds / 3600:.1f} h")
        lines.append([str(gpus), network, f"{batch:,}", f"{device_tokens:,}", *cells])
    return table(
        ("GPUs", "network", "batch_tokens", "device_tokens", "V100, float32", "V100, fp16", "A100, fp16"), lines
    )


def main() -> None:
    for size, updates in (("base", 100_000), ("big", 300_000)):
        print(f"### {size}, {updates:,} updates of 25,000 tokens\n\n{expectations(size, updates)}\n")


if __name__ == "__main__":
    main()
