"""The mean of the weights of several checkpoints (section 6.1)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from torch import Tensor

from transformer.files import Mistake
from transformer.model.weights import read_weights


def mean_weights(paths: Sequence[Path]) -> dict[str, Tensor]:
    """Checkpoint files to their element-wise mean, name -> tensor (section 6.1: "averaging the last 5 checkpoints").

    The sum is computed in float64. Each mean has the precision that the tensor has in the checkpoints.
    """
    if not paths:
        raise Mistake("There is no checkpoint to average. Train first.")
    return deque(running_means(paths), maxlen=1).pop()


def running_means(paths: Iterable[Path]) -> Iterator[dict[str, Tensor]]:
    """The means of the first checkpoint, of the first two, and so on; sums in float64, means in their precision."""
    total: dict[str, Tensor] = {}
    for count, path in enumerate(paths, start=1):
        weights = read_weights(path)
        for name, tensor in weights.items():
            total[name] = total[name].add_(tensor) if name in total else tensor.double()
        yield {name: (tensor / count).to(weights[name].dtype) for name, tensor in total.items()}
