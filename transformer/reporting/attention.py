"""Attention weights on the report page and as a picture: which sentences, their weights as bytes, the maps as SVG."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import vl_convert

from transformer.reporting.packing import compress

# Nine colours of viridis (Smith and van der Walt 2015), from weight 0 to weight 1; those between are interpolated.
SCALE = ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725")
MOST_BYTES = 1_200_000  # of the weights of all sentences, before compression: the page stays under 3 MB
DRAWN, LONGEST_LABEL = 48, 18  # subwords of a side in the picture, and characters of each
WIDEST_IMAGE = 3000  # pixels
CELL, SPACE, MARGIN, TITLE = 11, 14, 16, 58  # lengths of the picture, in pixels
NOT_IN_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, section 2.2


@dataclass(frozen=True)
class Text:
    """Subwords, </s> last, and for each of them the number of the word that it is part of."""

    subwords: Sequence[str]
    words: Sequence[int]


@dataclass(frozen=True)
class Target:
    """A target that the model was given, and the weights of its decoder. Row i: the state that predicts subword i."""

    text: Text
    decoder: np.ndarray  # (layers, H, T, T), columns: <s>, then the target without </s>
    cross: np.ndarray  # (layers, H, T, S)


@dataclass(frozen=True)
class Sentence:
    """A source with the weights of the encoder, (layers, H, S, S), and its targets by name.

    number: its line in the test set, from 1. why: it was chosen. chrf: of its translation.
    """

    number: int
    why: str
    chrf: float
    source: Text
    encoder: np.ndarray
    targets: Mapping[str, Target]


def choice(scores: Sequence[float], references: Sequence[str], hypotheses: Sequence[str]) -> dict[int, str]:
    """The indices of the sentences to show, each with the reason: the longest right one (in characters) and the worst.

    scores: sentence chrF; it is 0 for an empty reference, also if the translation is right. If none is right, the best
    by chrF is shown instead. A blank reference does not count as right. Of equal ones the first is chosen.
    """
    right = [i for i, reference in enumerate(references) if reference and hypotheses[i] == reference]
    if right:
        best, why = max(right, key=lambda i: (len(references[i]), -i)), "the longest that is translated exactly right"
    else:
        best, why = max(range(len(scores)), key=lambda i: (scores[i], -i)), "the best by chrF; none is exactly right"
    worst = min(range(len(scores)), key=lambda i: (100.0 if hypotheses[i] == references[i] else scores[i], i))
    return {best: why} if worst == best else {best: why, worst: "the worst by chrF"}


def quantise(weights: np.ndarray) -> np.ndarray:
    """Weights, whose rows sum to 1, to bytes, whose rows sum to 255: (..., S) -> (..., S), uint8.

    Each weight times 255 is rounded down. If the bytes of a row then sum to 255 - n, the n bytes that lost most are
    raised by 1; of equal ones the first (the method of largest remainders). So no byte is 1 or more away from its
    weight times 255.
    """
    exact = np.asarray(weights, np.float64) * 255
    down = np.floor(exact)
    ranks = np.argsort(np.argsort(down - exact, axis=-1, kind="stable"), axis=-1, kind="stable")
    return (down + (ranks < 255 - down.sum(-1, keepdims=True))).astype(np.uint8)


def shown_bytes(weights: np.ndarray, most: int) -> np.ndarray:
    """The bytes of the first `most` rows and columns of maps, (..., T, S). Whole rows are rounded, then cut."""
    return quantise(weights[..., :most, :])[..., :most]


def most_subwords(sentences: int, maps: int) -> int:
    """How many subwords of a side are shown, so that all weights are MOST_BYTES at most. maps: those of a sentence."""
    return max(1, math.isqrt(MOST_BYTES // (maps * sentences)))


def page_data(sentences: Sequence[Sentence]) -> dict[str, Any]:
    """What the report page shows, as JSON values. Weights are bytes (as_bytes), compressed; see packing.py.

    Of a side that is longer than `most_subwords`, only the first rows and columns are kept; `of` is its full length.
    """
    (encoder, heads), targets = sentences[0].encoder.shape[:2], sentences[0].targets.values()
    decoder = max(target.cross.shape[0] for target in targets)
    # a map for each head and layer of the encoder, and two of the decoder for each target: self and over source
    most = most_subwords(len(sentences), heads * (encoder + 2 * len(targets) * decoder))
    return {
        "layers": {"encoder": encoder, "decoder": decoder, "cross": decoder},
        "heads": heads,
        "scale": SCALE,
        "sentences": [sentence_contents(sentence, most) for sentence in sentences],
    }


def sentence_contents(sentence: Sentence, most: int) -> dict[str, Any]:
    """What the report page shows of a sentence, as JSON values; see `contents`. most: subwords of a side."""

    def pack(weights: np.ndarray) -> str:
        return compress(shown_bytes(weights, most).tobytes())

    def side(text: Text) -> dict[str, Any]:
        return {"subwords": text.subwords[:most], "words": text.words[:most], "of": len(text.subwords)}

    return {
        "number": sentence.number,
        "why": sentence.why,
        "chrf": round(sentence.chrf, 1),
        "source": side(sentence.source),
        "encoder": pack(sentence.encoder),
        "targets": [
            {"name": name, **side(target.text), "decoder": pack(target.decoder), "cross": pack(target.cross)}
            for name, target in sentence.targets.items()
        ],
    }


def colour(share: float) -> str:
    """The colour of a weight between 0 and 1."""
    position = min(share, 1) * (len(SCALE) - 1)
    low = min(int(position), len(SCALE) - 2)
    pairs = [(int(SCALE[low][at : at + 2], 16), int(SCALE[low + 1][at : at + 2], 16)) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(start + (end - start) * (position - low)):02x}" for start, end in pairs)


def picture(sentence: Sentence, name: str) -> str:
    """The weights of the decoder over the source as SVG: a map for each layer (down) and head (across).

    name: of the target. Rows are labelled at the first map of each layer, columns at the maps of the first layer. At
    most DRAWN rows and columns are drawn.
    """
    maps = shown_bytes(sentence.targets[name].cross, DRAWN)
    target, source = sentence.targets[name].text.subwords[:DRAWN], sentence.source.subwords[:DRAWN]
    layers, heads, rows, columns = maps.shape
    left, top = MARGIN + 20 + label_width(target), TITLE + 20 + label_width(source)
    right, down = columns * CELL + SPACE, rows * CELL + SPACE  # from one map to the next
    width, height = max(left + heads * right, 740) + MARGIN, top + layers * down + MARGIN
    title = f"Attention of the decoder over the source: sentence {sentence.number}, {escape(name)}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" font-family="DejaVu Sans, Arial, sans-serif" font-size="10" fill="#23211e">',
        f'<title>{title}</title><rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{MARGIN}" y="28" font-size="16">{title}</text>',
        f'<text x="{MARGIN}" y="47" font-size="11" fill="#6b665f">Row: the state that predicts this target subword. '
        f"Column: the source subword that it attends to. {extent(sentence, name)}</text>",
        *scale_bar(width - MARGIN - 130, 18),
    ]
    for layer in range(layers):
        y = top + layer * down
        parts += row_labels(target, f"layer {layer + 1}", left, y)
        for head in range(heads):
            parts.append(cells(maps[layer, head], left + head * right, y))
    for head in range(heads):
        x = left + head * right
        parts.append(f'<text x="{x}" y="{TITLE + 12}" font-size="12">head {head + 1}</text>')
        parts += [
            f'<text transform="translate({x + column * CELL + 9} {top - 4}) rotate(-90)">{label_text(text)}</text>'
            for column, text in enumerate(source)
        ]
    return "\n".join([*parts, "</svg>\n"])


def row_labels(target: Sequence[str], layer: str, left: float, y: float) -> list[str]:
    """The labels of a row of maps whose first one is at (left, y): the target subwords, and the name of the layer."""
    turned = f"translate({MARGIN + 8} {y + len(target) * CELL / 2:.1f}) rotate(-90)"
    return [
        f'<text transform="{turned}" text-anchor="middle" font-size="12">{layer}</text>',
        *(
            f'<text x="{left - 4}" y="{y + row * CELL + 9}" text-anchor="end">{label_text(text)}</text>'
            for row, text in enumerate(target)
        ),
    ]


def extent(sentence: Sentence, name: str) -> str:
    """What the subtitle of a picture says of its rows and columns: that they are whole, or how many are left out."""
    sides = {"rows": sentence.targets[name].text, "columns": sentence.source}
    cut = [
        f"first {DRAWN} of {len(text.subwords):,} {axis}" for axis, text in sides.items() if len(text.subwords) > DRAWN
    ]
    return f"Cut: {', '.join(cut)}." if cut else "Each row sums to 1."


def image(svg: str) -> bytes:
    """An SVG as PNG, enlarged 1.5 times, or less where it would be wider than WIDEST_IMAGE."""
    width = re.search(r'width="(\d+)"', svg)
    assert width
    return vl_convert.svg_to_png(svg, scale=min(1.5, WIDEST_IMAGE / int(width[1])))


def cells(weights: np.ndarray, x: int, y: int) -> str:
    """A map, (T, S) bytes, as SVG at a place: a path for each of 32 shades that occurs."""
    rows, columns = weights.shape
    paths = [f'<path fill="{SCALE[0]}" d="M0 0h{columns}v{rows}h-{columns}z"/>']
    for shade in range(1, 32):
        squares = "".join(f"M{column} {row}h1v1h-1z" for row, column in np.argwhere(weights // 8 == shade))
        if squares:
            paths.append(f'<path fill="{colour((shade + 0.5) / 32)}" d="{squares}"/>')
    return f'<g transform="translate({x} {y}) scale({CELL})" shape-rendering="crispEdges">{"".join(paths)}</g>'


def scale_bar(x: int, y: int) -> list[str]:
    """The colours of the weights 0 to 1 as SVG, 100 pixels wide, with their numbers."""
    parts = [f'<path fill="{colour(part / 24)}" d="M{x + 15 + 4 * part} {y}h4v10h-4z"/>' for part in range(25)]
    return [*parts, f'<text x="{x + 4}" y="{y + 9}">0</text><text x="{x + 120}" y="{y + 9}">1</text>']


def label_text(subword: str) -> str:
    """A subword as text of an SVG; a very long one is cut. What XML forbids, such as U+0008, becomes U+FFFD."""
    text = NOT_IN_XML.sub("\ufffd", subword)
    return escape(text if len(text) <= LONGEST_LABEL else f"{text[: LONGEST_LABEL - 1]}…")


def label_width(subwords: Sequence[str]) -> int:
    """About how wide the widest of these labels is, in pixels."""
    return 4 + 7 * min(LONGEST_LABEL, max(map(len, subwords)))
