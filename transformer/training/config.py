"""The settings of a training, one field for each knob of params.yaml that it reads, and the paper's learning rate."""

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


def learning_rate(step: int, d_model: int, warmup: int, factor: float = 1.0) -> float:
    """The learning rate of update `step`, counted from 1 (equation 3).

    It rises linearly for `warmup` updates to its peak, factor / sqrt(d_model * warmup), then falls with 1 / sqrt(step).
    Raises ValueError for a step or warmup below 1.
    """
    if step < 1 or warmup < 1:
        raise ValueError(f"step={step} and warmup={warmup} must be at least 1. Updates are counted from 1.")
    return factor * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
