"""Attention weights of two made-up sentences, as the stage attention writes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from transformer.reporting.attention import Sentence, Target, Text, page_data

LAYERS, HEADS = 2, 3
SOURCE = Text(["▁Ein", "▁Hund", "▁bell", "t", "</s>"], [0, 1, 2, 2, 3])
TRANSLATION = Text(["▁A", "▁dog", "▁bark", "s", "</s>"], [0, 1, 2, 2, 3])
REFERENCE = Text(["▁The", "▁dog", "▁is", "▁bark", "ing", "</s>"], [0, 1, 2, 3, 3, 4])
ATTACK = Text(["▁</script><b>", "▁مرحبا", "▁\u2028\x08", "</s>"], [0, 1, 2, 3])


def weights(rows: int, columns: int, causal: bool = False, layers: int = LAYERS) -> np.ndarray:
    """Weights of every layer and head, (layers, H, rows, columns), whose rows sum to 1.

    In row i, head h of layer l gives 0.75 to column i + l * H + h, counted round the row; the rest is even.
    """
    maps = np.ones((layers, HEADS, rows, columns))
    if causal:
        maps *= np.tri(rows, columns)
    maps *= 0.25 / maps.sum(-1, keepdims=True)
    for layer in range(layers):
        for head in range(HEADS):
            for row in range(rows):
                column = (row + layer * HEADS + head) % (row + 1 if causal else columns)
                maps[layer, head, row, column] += 0.75
    return maps


def sentence(number: int, why: str, source: Text, *targets: Text, encoder_layers: int = LAYERS) -> Sentence:
    """A sentence with the weights of `weights`. targets: translation and reference."""
    length = len(source.subwords)
    maps = {
        name: Target(
            text, weights(len(text.subwords), len(text.subwords), causal=True), weights(len(text.subwords), length)
        )
        for name, text in zip(("translation", "reference"), targets, strict=True)
    }
    return Sentence(number, why, 50.0, source, weights(length, length, layers=encoder_layers), maps)


def attention_of_two() -> dict[str, Any]:
    """What the page shows of two sentences: numbers 7 and 9, the second with text that must be escaped."""
    return page_data(
        [sentence(7, "the longest", SOURCE, TRANSLATION, REFERENCE), sentence(9, "the worst", ATTACK, ATTACK, SOURCE)]
    )
