"""The learning rate of the paper (section 5.3), as arithmetic: no optimiser, no state, no torch."""


def learning_rate(step: int, d_model: int, warmup: int, factor: float = 1.0) -> float:
    """Learning rate of update `step`, counted from 1 (equation 3).

    Rises linearly for `warmup` updates, peaks there at factor / sqrt(d_model * warmup), then falls with 1 / sqrt(step).
    Raises ValueError for a step or warmup below 1.
    """
    if step < 1 or warmup < 1:
        raise ValueError(f"step={step} and warmup={warmup} must be at least 1: updates are counted from 1")
    return factor * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
