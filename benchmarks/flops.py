"""Sizes of the measured models and the arithmetic that training them takes, the same for every program."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

SMOOTHING = DROPOUT = 0.1  # of every program


@dataclass(frozen=True)
class Size:
    """Numbers that make a model: D, F, H, and as many encoder as decoder layers."""

    d_model: int
    d_ff: int
    heads: int
    layers: int


SIZES = {"tiny": Size(128, 256, 4, 4), "base": Size(512, 2048, 8, 6)}


def useful_flop(size: Size, vocabulary: int, source: np.ndarray, target: np.ndarray) -> float:
    """FLOP of one training pass over pairs of these lengths, (pairs,) each, of which padding takes none.

    Each weight of a matrix multiplies once per token that it meets, and so does each number of a key and of a value per
    position that looks at it; 2 FLOP forward and 4 backward for each. Norms, softmax, dropout and Adam are not counted.
    """
    width, source, target = size.d_model, source.astype(np.float64), target.astype(np.float64)
    feed_forward = 2 * width * size.d_ff
    of_source = size.layers * (4 * width**2 + feed_forward + 2 * width**2)  # the last: keys and values for the decoder
    of_target = size.layers * (4 * width**2 + 2 * width**2 + feed_forward) + vocabulary * width
    looks = source**2 + target * (target + 1) / 2 + target * source  # a target position sees itself and those before
    products = of_source * source.sum() + of_target * target.sum() + size.layers * 2 * width * looks.sum()
    return 6 * float(products)


def matrix_shapes(size: Size, vocabulary: int) -> Counter[tuple[int, int]]:
    """How many matrices (rows, columns) of each shape the model multiplies its tokens by."""
    width, inner = size.d_model, size.d_ff
    attention = Counter({(3 * width, width): 1, (width, width): 1})
    cross = Counter({(width, width): 2, (2 * width, width): 1})
    feed_forward = Counter({(inner, width): 1, (width, inner): 1})
    shapes = Counter({(vocabulary, width): 1})
    for part in (attention, feed_forward, attention, cross, feed_forward):
        shapes += Counter({shape: size.layers * number for shape, number in part.items()})
    return shapes
