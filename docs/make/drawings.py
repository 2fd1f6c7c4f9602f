"""The pictures of the walkthrough that are drawn by hand: the model, attention, batches, the cache, several devices."""

from __future__ import annotations

from docs.make.svg import Drawing


def drawings() -> dict[str, str]:
    """All drawings: name -> SVG."""
    makers = (architecture, attention, shift, batch, cache, deal)
    return {maker.__name__: maker() for maker in makers}


def stack(d: Drawing, x: float, y: float, parts: list[tuple[str, str]]) -> None:
    """Sub-layers from bottom to top, each followed by its residual sum and norm. y: of the bottom."""
    for label, look in parts:
        d.box(x, y - 40, 170, 34, label, look)
        d.box(x, y - 66, 170, 20, "add & norm", "grey")
        d.arrow((x + 85, y + 10), (x + 85, y - 6))
        d.line([(x + 85, y + 4), (x - 16, y + 4), (x - 16, y - 56), (x, y - 56)], "edge")
        y -= 84


def architecture() -> str:
    """Figure 1: encoder and decoder with the shapes on the arrows."""
    d = Drawing(720, 600)
    d.text(185, 28, "encoder", "bold")
    d.text(535, 28, "decoder", "bold")
    d.rect(70, 300, 230, 188, "rule", rx=8)
    d.text(62, 395, "6 x", "muted", "end")
    stack(d, 100, 470, [("self-attention", "warm"), ("feed-forward", "soft")])
    d.rect(420, 212, 230, 276, "rule", rx=8)
    d.text(662, 350, "6 x", "muted", "start")
    stack(d, 450, 470, [("masked self-attention", "warm"), ("attention to memory", "warm"), ("feed-forward", "soft")])
    for x, words, ids in ((100, "source ids", "(B, S)"), (450, "target ids, shifted", "(B, T)")):
        d.box(x, 505, 170, 30, "embedding + position", "cool")
        d.arrow((x + 85, 572), (x + 85, 535))
        d.line([(x + 85, 505), (x + 85, 480)])
        d.text(x + 85, 588, f"{words} {ids}")
        d.text(x + 93, 500, f"{ids[:-1]}, D)", "muted small", "start")
    d.line([(185, 320), (185, 250), (360, 250)])
    d.arrow((360, 250), (360, 366), (450, 366))
    d.text(272, 242, "memory (B, S, D)", "muted small")
    d.text(355, 340, "keys and", "muted small", "end")
    d.text(355, 354, "values", "muted small", "end")
    d.arrow((535, 236), (535, 168))
    d.text(543, 200, "states (B, T, D)", "muted small", "start")
    d.box(430, 138, 210, 30, "times the embedding matrix", "cool")
    d.arrow((535, 138), (535, 108))
    d.text(543, 126, "scores (B, T, V)", "muted small", "start")
    d.box(450, 78, 170, 30, "softmax", "grey")
    d.arrow((535, 78), (535, 52))
    d.text(535, 46, "p of the next subword", "muted small")
    return d.svg("The Transformer: encoder on the left, decoder on the right, with shapes")


def attention() -> str:
    """Figure 2: scaled dot-product attention, and several heads."""
    d = Drawing(720, 430)
    steps = [("Q K^T", "soft"), ("divide by √d_k", "grey"), ("add mask (0 or -inf)", "grey"), ("softmax", "soft")]
    d.text(170, 26, "one attention", "bold")
    for number, (label, look) in enumerate(steps):
        y = 330 - 62 * number
        d.box(60, y, 150, 32, label, look)
        if number:
            d.arrow((135, y + 62), (135, y + 32))
    d.text(143, 320, "(B, H, T, S)", "muted small", "start")
    d.box(60, 82, 240, 32, "weights times V", "soft")
    d.arrow((135, 144), (135, 114))
    d.text(143, 134, "weights (B, H, T, S)", "muted small", "start")
    d.arrow((180, 82), (180, 54))
    d.text(188, 70, "(B, H, T, D/H)", "muted small", "start")
    for x, name, shape in ((90, "Q", "(B, H, T, K)"), (175, "K", "(B, H, S, K)"), (270, "V", "(B, H, S, D/H)")):
        d.text(x, 402, name, "bold")
        d.text(x, 419, shape, "muted small")
        d.arrow((x, 388), (x, 362 if name != "V" else 114))
    d.text(540, 26, "several heads", "bold")
    for number in (2, 1, 0):
        d.box(410 + 10 * number, 190 - 8 * number, 240, 40, "attention" if not number else "", "warm")
        for x in (420, 500, 580):
            d.box(x + 10 * number, 290 - 8 * number, 60, 32, "linear" if not number else "", "cool")
    inputs = ("x", "(B, T, D)"), ("memory or x", "(B, S, D)"), ("memory or x", "(B, S, D)")
    for x, name, (source, shape) in zip((450, 530, 610), ("queries", "keys", "values"), inputs, strict=True):
        d.arrow((x, 290), (x, 230))
        d.text(x + 6, 258, name, "muted small", "start")
        d.arrow((x, 388), (x, 322))
        d.text(x, 402, source, "small")
        d.text(x, 419, shape, "muted small")
    d.text(690, 166, "H of them", "muted small", "end")
    d.arrow((530, 174), (530, 146))
    d.box(450, 114, 160, 32, "join (B, T, D)", "grey")
    d.arrow((530, 114), (530, 96))
    d.box(450, 64, 160, 32, "linear W^O", "cool")
    d.arrow((530, 64), (530, 40))
    return d.svg("Left: scaled dot-product attention. Right: multi-head attention")


def shift() -> str:
    """Teacher forcing: what is read and what is predicted at each position."""
    d = Drawing(720, 220)
    read, asked = ["<s>", "the", "cat", "sleeps", "."], ["the", "cat", "sleeps", ".", "</s>"]
    d.text(96, 66, "read", "muted", "end")
    d.text(96, 176, "predict", "muted", "end")
    d.box(110, 95, 580, 34, "decoder: a position sees itself and what is left of it", "soft")
    for number, (word, right) in enumerate(zip(read, asked, strict=True)):
        x = 115 + 116 * number
        d.box(x, 45, 106, 32, word, "warm" if number <= 2 else "box")
        d.arrow((x + 53, 77), (x + 53, 95))
        d.arrow((x + 53, 129), (x + 53, 155))
        d.box(x, 155, 106, 32, right, "cool" if number == 2 else "box")
    return d.svg("The decoder reads the target shifted by one and predicts the next subword at each position")


def batch() -> str:
    """Three pairs with padding."""
    d = Drawing(720, 190)
    source = [["8", "5", "9", "3"], ["7", "4", "3", ""], ["6", "3", "", ""]]
    target = [["2", "11", "12", "10", "15"], ["2", "13", "14", "", ""], ["2", "16", "", "", ""]]
    asked = [["11", "12", "10", "15", "3"], ["13", "14", "3", "", ""], ["16", "3", "", "", ""]]
    parts = [
        (20, "source (B, S)", source, "warm"),
        (230, "target input (B, T)", target, "soft"),
        (480, "to predict", asked, "cool"),
    ]
    for left, title, rows, look in parts:
        d.text(left, 36, title, "", "start")
        for i, row in enumerate(rows):
            for j, number in enumerate(row):
                d.box(left + 44 * j, 50 + 40 * i, 40, 34, number or "0", look if number else "grey")
    d.text(
        20,
        180,
        "2 is <s>, 3 is </s>, 0 is <pad>: grey cells pass through the layers, but are not projected and give no loss",
        "muted small",
        "start",
    )
    return d.svg("A batch of three pairs with its padding")


def cache() -> str:
    """A step of decoding with a cache."""
    d = Drawing(720, 240)
    d.text(20, 40, "keys and values kept from earlier steps", "muted", "start")
    for number, word in enumerate(("<s>", "the", "cat")):
        d.box(20 + 110 * number, 55, 100, 46, f"{word}\nk, v", "grey")
    d.box(350, 55, 100, 46, "sleeps\nk, v", "warm")
    d.text(460, 83, "appended in this step", "muted small", "start")
    d.box(350, 165, 100, 40, "query of\n“sleeps”", "warm")
    for number in range(4):
        d.arrow((400, 165), (70 + 110 * number, 103))
    d.arrow((450, 185), (520, 185))
    d.box(520, 165, 170, 40, "one state (B, N, D)\nto the next subword", "cool")
    d.text(20, 190, "the query attends to all of them;", "muted small", "start")
    d.text(20, 206, "no earlier position is computed again", "muted small", "start")
    return d.svg("A decoding step with a cache of keys and values")


def deal() -> str:
    """How an update is dealt to two devices."""
    d = Drawing(720, 300)
    d.box(20, 120, 130, 60, "one update\n10,160 tokens", "soft")
    parts = [("part 0: 3,000", 0), ("part 1: 2,990", 1), ("part 2: 2,970", 1), ("part 3: 1,200", 0)]
    for number, (label, device) in enumerate(parts):
        y = 25 + 66 * number
        d.arrow((150, 150), (200, y + 18))
        d.box(200, y, 130, 36, label, "warm" if device == 0 else "cool")
        d.arrow((330, y + 18), (400, 80 if device == 0 else 210))
    for y, name, look in ((55, "device 0\ngradients added up", "warm"), (185, "device 1\ngradients added up", "cool")):
        d.box(400, y, 150, 50, name, look)
        d.arrow((550, y + 25), (590, 145))
    d.box(590, 115, 110, 60, "sum of all,\nthe same step\non each", "grey")
    d.text(
        20,
        285,
        "cut by tokens, largest first to the device with the fewest; the numbers are an example",
        "muted small",
        "start",
    )
    return d.svg("An update is cut into parts, dealt to two devices, and its gradients are summed")
