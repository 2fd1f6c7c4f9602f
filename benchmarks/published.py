"""Speeds of training the Transformer that others have published, each with its source."""

from __future__ import annotations

from typing import NamedTuple

SOURCES = {
    "vaswani": "https://arxiv.org/abs/1706.03762",
    "nvidia": "https://github.com/NVIDIA/DeepLearningExamples/blob/0053b4b88862846fa74df947282a079898d09125/"
    "PyTorch/Translation/Transformer/README.md",
    "lightseq": "https://github.com/bytedance/lightseq/blob/fb591f93d33fd21135c0050ebec8decedc670772/"
    "docs/training/performance.md",
    "ott": "https://arxiv.org/abs/1806.00187",
    "issue-187": "https://github.com/facebookresearch/fairseq/issues/187",
    "issue-233": "https://github.com/facebookresearch/fairseq/issues/233",
    "issue-361": "https://github.com/facebookresearch/fairseq/issues/361",
    "issue-417": "https://github.com/facebookresearch/fairseq/issues/417",
    "issue-940": "https://github.com/facebookresearch/fairseq/issues/940",
    "nccl": "https://github.com/NVIDIA/nccl-tests/blob/03a204a1f38aaea17f1a777885bb2d9600ba7eff/doc/PERFORMANCE.md",
    "gpus": "http://www.xenon.com.au/nvidia-tesla-volta-worlds-advanced-data-center-gpu/",
}
TARGET_SHARE = 617_000 / (128 * 5120)  # target tokens in a token of max_tokens x GPUs (issue 233)
PEAK_FLOAT32 = {"P100": 10.6e12, "V100": 15e12}  # FLOP per second; source "gpus"


TITLES = {
    "vaswani": "Vaswani et al. 2017",
    "nvidia": "NVIDIA's README",
    "lightseq": "LightSeq's tables",
    "ott": "Ott et al. 2018",
    "nccl": "NCCL's tests",
    "gpus": "V100 and P100 compared",
}


class Row(NamedTuple):
    """A published speed of the big model (width 1024, feed-forward 4096) on WMT14 English-German."""

    source: str  # key of SOURCES
    gpu: str
    precision: str
    layers: int  # of the encoder, and as many of the decoder
    gpus: int  # all in one machine
    batch_tokens: int  # of a GPU: sentences x longest side, at most
    words_per_second: int  # target tokens per second, of all GPUs

    def __str__(self) -> str:
        return f"{self.gpus} {self.gpu}, {self.precision}, {self.layers} + {self.layers} layers, {self.batch_tokens:,}"


def lightseq(gpu: str, layers: int, gpus: int, speeds: dict[int, int]) -> list[Row]:
    """The rows of a column Fairseq of LightSeq's tables: batch tokens of a GPU -> words per second."""
    return [Row("lightseq", gpu, "fp16", layers, gpus, tokens, speed) for tokens, speed in speeds.items()]


def nvidia(precision: str, gpus: int, speeds: dict[int, int]) -> list[Row]:
    """The rows of NVIDIA's tables for a number of V100."""
    return [Row("nvidia", "V100", precision, 6, gpus, tokens, speed) for tokens, speed in speeds.items()]


FAIRSEQ_V100 = [
    *lightseq("V100", 6, 1, {512: 3781, 1024: 8031, 2048: 16061, 4096: 23451, 8192: 28794, 15000: 31753}),
    *lightseq("V100", 6, 8, {512: 26005, 1024: 58071, 2048: 106271, 4096: 167008, 8192: 208873, 15000: 237337}),
    *lightseq("V100", 12, 8, {512: 11616, 1024: 31628, 2048: 60279, 4096: 91947}),
    *lightseq("V100", 24, 8, {512: 7276, 1024: 15916, 2048: 32687}),
]
FAIRSEQ_A100 = [
    *lightseq("A100", 6, 8, {512: 33300, 1024: 76500, 2048: 166100, 4096: 283800, 8192: 386500, 15000: 445600}),
    *lightseq("A100", 12, 8, {512: 20300, 1024: 42500, 2048: 91100, 4096: 162600, 8192: 204200}),
    *lightseq("A100", 24, 8, {512: 10300, 1024: 20800, 2048: 48100, 4096: 86100}),
]
NVIDIA_MIXED = [
    *nvidia("mixed", 1, {2560: 23821, 5120: 32153}),
    *nvidia("mixed", 4, {2560: 92514}),
    *nvidia("mixed", 8, {2560: 186442, 5120: 235077}),
]
NVIDIA_FLOAT32 = [
    *nvidia("float32", 1, {2560: 7635}),
    *nvidia("float32", 4, {2560: 26647}),
    *nvidia("float32", 8, {2560: 53641}),
]
HELD_OUT = [*nvidia("mixed", 16, {5120: 476585}), *nvidia("float32", 16, {5120: 128319})]
LEFT_OUT = [
    (
        *nvidia("mixed", 4, {5120: 75574}),
        "less than the same table has for 4 GPUs at 2,560 tokens, and less than a third of its 8 GPUs at 5,120",
    ),
]


class Log(NamedTuple):
    """A training on several machines, as its log reports it."""

    source: str
    gpus: int
    batch_tokens: int  # of a GPU
    updates: int
    seconds: float


OTT_LOG = Log("issue-233", 128, 5120, 80_000, 30_878.0)  # the big model, WMT14 English-French, fp16, V100


class Step(NamedTuple):
    """A model of Vaswani et al. 2017 (section 5.2), trained on 8 P100 with 25,000 target tokens an update."""

    size: str
    seconds: float


VASWANI = [Step("base", 0.4), Step("big", 1.0)]
VASWANI_GPUS, VASWANI_TOKENS, VOCABULARY = 8, 25_000, 37_000  # section 5.1
NVIDIA_VOCABULARY = 33_708  # of source "nvidia"; LightSeq's tables do not say theirs, the corpus and model are the same


class Least(NamedTuple):
    """A speed of the base model on 4 V100 that M. Ott gives as a lower bound; GPUs hold 3,500 or 4,000 tokens."""

    precision: str
    words_per_second: int


OTT_BASE, OTT_BASE_GPUS, OTT_BASE_TOKENS, OTT_BASE_VOCABULARY = (
    [Least("fp16", 160_000), Least("float32", 73_000)],
    4,
    4000,
    30_000,
)


class Batch(NamedTuple):
    """A batch that somebody trained the big model with."""

    what: str
    source: str
    gpus: int
    device_tokens: int  # max_tokens of a GPU
    rate: float  # learning rate at its peak; 0: not said

    @property
    def batch_tokens(self) -> int:
        """Sentences x longest side of an update, at most."""
        return self.gpus * self.device_tokens


BATCHES = [
    Batch("WMT14 en-de", "issue-187", 8, 3584, 0.0007),
    Batch("WMT18 en-de", "issue-417", 128, 3584, 0.0005),
    Batch("WMT14 en-de", "issue-187", 128, 3584, 0.001),
    Batch("WMT14 en-fr", "issue-233", 128, 5120, 0.0),
]
OTT_WARMUP = 4000  # updates, in the command of issue 187
