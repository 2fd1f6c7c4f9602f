"""The settings of a training, one field for each knob of params.yaml that it reads, and the paper's learning rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from transformer.files import Mistake
from transformer.model.config import Count, CountOrNone, NotNegative, Positive, Share, check_settings, unequal_parts

Precision = Literal["float32", "float64", "bfloat16"]
Optimiser = Literal["adam", "muon"]
BestBy = Literal["loss", "bleu"]
SOME_BLEU = 1.0  # percent; a BLEU below it is noise, and the loss decides


@dataclass(frozen=True)
class TrainConfig:
    """The settings of a training, under the names of the knobs in params.yaml, where each is explained.

    The defaults are those of the paper's base model. Raises Mistake for a value out of range.

    Units: max_steps, warmup, log_every and save_every are updates. batch_tokens (of an update) and device_tokens (of a
    micro-batch) are sentences x longest side, with </s> and padding. best_by: how checkpoints are ranked, loss or bleu
    (of greedy translations of valid). patience: number of validations in a row without a new best after which the
    training ends; 0: never.
    """

    seed: CountOrNone = 1
    batch_tokens: Count = 25_000
    device_tokens: Count = 3_000
    max_steps: Count = 100_000
    warmup: Count = 4_000
    lr_factor: Positive = 1.0
    optimiser: Optimiser = "adam"
    muon_factor: Positive = 2.0
    adam_beta1: Share = 0.9
    adam_beta2: Share = 0.98
    adam_epsilon: Positive = 1e-9
    clip_norm: NotNegative = 0.0
    label_smoothing: Share = 0.1
    precision: Precision = "float32"
    deterministic: bool = False
    compile: bool = False
    log_every: Count = 50
    save_every: Count = 1_250
    keep: Count = 5
    patience: CountOrNone = 0
    best_by: BestBy = "loss"

    def __post_init__(self) -> None:
        check_settings(self)
        if messages := unequal_parts(self, (("log_every", "save_every"), ("save_every", "max_steps"))):
            raise Mistake(messages[0])
