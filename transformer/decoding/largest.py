"""The largest values of long rows: what only makes the search faster."""

from __future__ import annotations

from torch import Tensor

BLOCK = 64  # rows have a multiple of so many values


def largest_per_row(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest values of each row (B, R) and their places, largest first, equal values by place.

    Formula: values.sort(dim=1, descending=True, stable=True), the first `count`. Each of them is in one of the `count`
    blocks with the largest maxima, so only these blocks are searched, in the order of their places.
    """
    blocks = values.view(len(values), -1, BLOCK)  # (B, R) -> (B, R/BLOCK, BLOCK)
    chosen = sorted_or_top(blocks.amax(-1), min(count, blocks.shape[1]))[1].sort(1).values
    inside = blocks.take_along_dim(chosen[:, :, None], 1).flatten(1)  # (B, count*BLOCK)
    top, places = sorted_or_top(inside, min(count, inside.shape[1]))
    return top, chosen.gather(1, places // BLOCK) * BLOCK + places % BLOCK


def sorted_or_top(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """As `largest_per_row`, for rows of any length: torch's topk, which is faster, unless equal values meet its end."""
    if not values.is_cuda:  # on a GPU the check for equal values takes longer than sorting
        top, places = values.topk(count)
        if not bool(((values >= top[:, -1:]).sum(1) > count).any() | (top[:, 1:] == top[:, :-1]).any()):
            return top, places
    top, places = values.sort(dim=1, descending=True, stable=True)
    return top[:, :count], places[:, :count]
