"""The settings of a training: one field for each knob of params.yaml that a training reads, but the model's sizes."""

from __future__ import annotations

from dataclasses import dataclass

SOME_BLEU = 1.0  # percent; a BLEU below it is noise, and the loss decides


@dataclass(frozen=True)
class TrainConfig:
    """The settings of a training, under the names of the knobs in params.yaml, where each is explained.

    Units: max_steps, warmup, log_every and save_every are updates. batch_tokens (of an update) and device_tokens (of a
    micro-batch) are sentences x longest side, with </s> and padding. best_by: how checkpoints are ranked, loss or bleu
    (of greedy translations of valid). patience: number of validations in a row without a new best after which the
    training ends; 0: never.
    """

    seed: int
    batch_tokens: int
    device_tokens: int
    max_steps: int
    warmup: int
    lr_factor: float
    optimiser: str
    muon_factor: float
    adam_beta1: float
    adam_beta2: float
    adam_epsilon: float
    clip_norm: float
    gradient_compression: str
    label_smoothing: float
    ema_decay: float
    precision: str
    deterministic: bool
    compile: bool
    log_every: int
    save_every: int
    keep: int
    patience: int
    best_by: str
