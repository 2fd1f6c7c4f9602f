"""Sizes of the measured models, and the FLOP that training them takes, the same for every program."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

SMOOTHING = DROPOUT = 0.1  # of every program


@dataclass(frozen=True)
class Size:
    """The size of a model: D, width inside the feed-forward layers, H, encoder layers (= decoder layers)."""

    d_model: int
    d_ff: int
    heads: int
    layers: int


SIZES = {"tiny": Size(128, 256, 4, 4), "base": Size(512, 2048, 8, 6), "big": Size(1024, 4096, 16, 6)}


def useful_flop(size: Size, vocabulary: int, source: np.ndarray, target: np.ndarray) -> float:
    """FLOP of one training pass over pairs without padding.

    source, target: lengths of the pairs, (pairs,) each. Each weight of a matrix multiplies once per token, and each
    number of a key or value once per position that attends to it, at 2 FLOP forward and 4 backward. Norms, softmax,
    dropout and Adam are not counted.
    """
    width, source, target = size.d_model, source.astype(np.float64), target.astype(np.float64)
    feed_forward = 2 * width * size.d_ff
    of_source = size.layers * (4 * width**2 + feed_forward + 2 * width**2)  # last term: keys and values for the decoder
    of_target = size.layers * (4 * width**2 + 2 * width**2 + feed_forward) + vocabulary * width
    attended = source**2 + target * (target + 1) / 2 + target * source  # the target attends to itself and before
    products = of_source * source.sum() + of_target * target.sum() + size.layers * 2 * width * attended.sum()
    return 6 * float(products)


def matrix_shapes(size: Size, vocabulary: int) -> Counter[tuple[int, int]]:
    """How many matrices of each shape (rows, columns) the model has."""
    width, inner = size.d_model, size.d_ff
    attention = Counter({(3 * width, width): 1, (width, width): 1})
    cross = Counter({(width, width): 2, (2 * width, width): 1})
    feed_forward = Counter({(inner, width): 1, (width, inner): 1})
    shapes = Counter({(vocabulary, width): 1})
    for part in (attention, feed_forward, attention, cross, feed_forward):
        shapes += Counter({shape: size.layers * number for shape, number in part.items()})
    return shapes
