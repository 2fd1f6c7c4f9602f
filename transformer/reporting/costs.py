"""What a training spent: updates, tokens, and floating-point operations (FLOP)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def training_flop(params: Mapping[str, Any], vocabulary: int, source_tokens: float, target_tokens: float) -> float:
    """The FLOP of a training: 6 for each token and each weight of a matrix that multiplies it (Kaplan et al. 2020,
    section 2.1), which is 2 in the forward pass and 4 in the backward pass.

    A layer has 6 D^2 + 2 D F such weights for a source token, of which 2 D^2 are the keys and values of the decoder,
    and as many for a target token; the projection has V D for a target token. The products of queries, keys and values
    with each other, norms and the optimiser are not counted. params: with layers, d_model (D) and d_ff (F).
    vocabulary: V. Tokens: subwords that were trained on, </s> included.
    """
    width, inner, layers = params["d_model"], params["d_ff"], params["layers"]
    of_layers = layers * (6 * width**2 + 2 * width * inner)
    return 6.0 * (source_tokens * of_layers + target_tokens * (of_layers + vocabulary * width))


def costs(
    params: Mapping[str, Any], training: Mapping[str, Any], subwords: Mapping[str, Any], vocabulary: int
) -> dict[str, float]:
    """The rows of the table of costs. training: training.json. subwords: subwords.json, with the numbers of train.

    The source tokens follow from the target tokens by the ratio of both in train, with a </s> for each sentence. Empty
    if the tokens are not known.
    """
    if "target_tokens" not in training:
        return {}
    sides = [subwords["train"][side] for side in ("source", "target")]
    source, target = (side["subwords"] + side["sentences"] for side in sides)
    target_tokens = training["target_tokens"]
    source_tokens = target_tokens * source / target
    flop = training_flop(params, vocabulary, source_tokens, target_tokens)
    return {"updates": training["steps"], "target tokens": target_tokens, "source tokens, about": round(source_tokens),
            "FLOP, about": flop}  # fmt: skip
