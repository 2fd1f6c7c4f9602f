"""What a training spent: updates, tokens, and floating-point operations (FLOP)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def training_flop(params: Mapping[str, Any], vocabulary: int, source_tokens: float, target_tokens: float) -> float:
    """The FLOP of a training: 6 for each token and each weight of a matrix that multiplies it (Kaplan et al. 2020,
    section 2.1), which is 2 in the forward pass and 4 in the backward pass.

    An attention has H K D such weights for its queries, as many for its keys, and D^2 each for values and output. A
    source token is multiplied by those of the encoder, and of the keys and values of the decoder's attention to it; a
    target token by all others of the decoder, and by V D of the projection. A feed-forward layer has 2 D F. The
    products of queries, keys and values with each other, norms and the optimiser are not counted. params: with d_model
    (D), d_ff (F), heads (H), key_size (K), layers, encoder_layers, decoder_layers. vocabulary: V. Tokens: subwords that
    were trained on, </s> included.
    """
    width, inner, (encoder, decoder) = params["d_model"], params["d_ff"], depths(params)
    half = params["heads"] * (params["key_size"] or width // params["heads"]) * width + width**2  # of an attention
    of_source = encoder * (2 * half + 2 * width * inner) + decoder * half
    of_target = decoder * (3 * half + 2 * width * inner) + vocabulary * width
    return 6.0 * (source_tokens * of_source + target_tokens * of_target)


def depths(params: Mapping[str, Any]) -> tuple[int, int]:
    """The numbers of encoder and decoder layers."""
    return params["encoder_layers"] or params["layers"], params["decoder_layers"] or params["layers"]


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
    return {
        "updates": training["steps"],
        "target tokens": target_tokens,
        "source tokens, about": round(source_tokens),
        "FLOP, about": flop,
    }
