"""The learning rate of the paper (section 5.3) as a pure function, without torch."""


def learning_rate(step: int, d_model: int, warmup: int, factor: float = 1.0) -> float:
    """The learning rate of update `step`, counted from 1 (equation 3).

    It rises linearly for `warmup` updates to its peak, factor / sqrt(d_model * warmup), then falls with 1 / sqrt(step).
    Raises ValueError for a step or warmup below 1.
    """
    if step < 1 or warmup < 1:
        raise ValueError(f"step={step} and warmup={warmup} must be at least 1. Updates are counted from 1.")
    return factor * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
