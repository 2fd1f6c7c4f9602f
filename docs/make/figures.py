"""The pictures of the walkthrough: what is drawn by hand, and charts of the measurements."""

from __future__ import annotations

import math
from typing import Any

from docs.make.drawings import drawings
from docs.make.svg import Drawing, Plot
from transformer.model.transformer import sinusoids
from transformer.training.config import learning_rate

Values = dict[str, Any]
NAMES = {  # name of a training -> how the chart calls it
    "usual": "usual setup",
    "unscaled": "embeddings not scaled",
    "untied": "three embedding matrices",
    "no positions": "no positions",
    "learned positions": "learned positions",
    "one head": "one head",
    "undivided": "one head, not divided",
    "no warm-up": "no warm-up",
    "no smoothing": "no label smoothing",
    "no dropout": "no dropout",
    "pre": "pre-norm",
    "muon": "Muon",
    "deep post": "six layers, post-norm",
    "deep pre": "six layers, pre-norm",
    "deep pre, no last norm": "the same, no last norm",
}


def figures(m: Values, r: Values) -> dict[str, str]:
    """All pictures: name -> SVG. m: the measurements. r: what was recorded of the training on Multi30k."""
    charts = {
        "mask": mask(m["masks"]),
        "positions": positions(),
        "rates": rates(),
        "smoothing": smoothing(),
        "losses": losses(m["program"]["losses"]),
        "copied": copied(m["program"]["looked"]),
        "trainings": trainings(m["trainings"]),
        "longer": longer(m["longer"], m["setup"]["long_updates"]),
        "norms": norms(m["untrained"]),
        "spectrum": spectrum(m["spectrum"]),
        "curve": curve(r["curve"], r["averaging"]["steps"], r["schedule"]),
        "cross": cross(r["attention"]),
    }
    source, target = r["attention"]["source"], r["attention"]["target"]
    read = ["<s>", *target[:-1]]
    names = {"encoder": (source, source), "decoder": (read, read), "cross": (target, source)}
    charts |= {f"{kind}-heads": heads(r["attention"][kind], kind, *both) for kind, both in names.items()}
    return drawings() | charts


def mask(m: Values) -> str:
    """The causal mask, and how far states move when a subword changes."""
    names = m["subwords"]
    drawing = Drawing(720, 330)
    allowed = [[float(j <= i) for j in range(len(names))] for i in range(len(names))]
    drawing.matrix(80, 75, allowed, 20, (names, names))
    largest = max(m["movement"])
    drawing.text(430, 60, "movement of the state", "muted", "start")
    for i, (name, moved) in enumerate(zip(names, m["movement"], strict=True)):
        drawing.text(424, 89 + 20 * i, name, "small" + (" bold" if i == 6 else ""), "end")
        drawing.rect(430, 77 + 20 * i, 200 * moved / largest, 15, "blue")
        drawing.text(436 + 200 * moved / largest, 89 + 20 * i, f"{moved:.2f}", "small muted", "start")
    return drawing.svg("Causal mask, and movement of decoder states after a change")


def positions() -> str:
    """The position encodings as a matrix."""
    drawing = Drawing(640, 330)
    drawing.matrix(60, 30, sinusoids(60, 32).T.tolist(), 9)
    drawing.text(330, 20, "position 0 to 59", "muted small")
    drawing.text(50, 175, "dimension", "muted small", "middle", -90)
    return drawing.svg("Position encodings")


def rates() -> str:
    """Equation 3 for three settings."""
    drawing = Drawing(720, 300)
    plot = Plot(drawing, (70, 40, 460, 200), (0, 20000), (0, 0.0011))
    plot.axes("update", "learning rate", range(0, 20001, 5000), (0, 0.0005, 0.001))
    steps = range(100, 20001, 100)
    for number, (width, warmup) in enumerate(((512, 4000), (512, 8000), (256, 4000))):
        values = [learning_rate(step, width, warmup) for step in steps]
        plot.curve(steps, values, number)
        drawing.key(550, 60 + 24 * number, number, f"D {width}, warmup {warmup}")
    return drawing.svg("The learning rate by update")


def smoothing() -> str:
    """The smoothed loss by the probability of the right subword."""
    drawing = Drawing(720, 300)
    plot = Plot(drawing, (70, 40, 460, 200), (0, 1), (0, 4))
    plot.axes("probability of the right subword", "loss, nats", (0, 0.25, 0.5, 0.75, 1), (0, 1, 2, 3, 4))
    for number, amount in enumerate((0.0, 0.1, 0.3)):
        shares = [0.02 + 0.0005 * i for i in range(1960)]
        values = [-(1 - amount) * math.log(p) - amount * math.log((1 - p) / 8) for p in shares]
        points = [(p, value) for p, value in zip(shares, values, strict=True) if value <= 4]
        plot.curve([p for p, _ in points[::4]], [value for _, value in points[::4]], number)
        drawing.key(550, 60 + 24 * number, number, f"smoothing {amount:g}")
    return drawing.svg("The loss by the probability of the right subword")


def losses(values: list[float]) -> str:
    """The loss of each update of the copy task, and the lowest one that label smoothing allows."""
    drawing = Drawing(720, 300)
    plot = Plot(drawing, (60, 40, 560, 200), (0, len(values)), (0, max(3.0, max(values))))
    plot.axes("update", "smoothed loss, nats per subword", range(0, len(values) + 1, 50), (0, 1, 2, 3))
    floor = -0.9 * math.log(0.9) - 0.1 * math.log(0.1 / 12)
    plot.curve((0, len(values)), (floor, floor), 1, f"floor {floor:.2f}")
    plot.curve(range(1, len(values) + 1), values)
    return drawing.svg("Loss of the copy task by update")


def copied(values: list[list[float]]) -> str:
    """The attention of the copy task."""
    drawing = Drawing(360, 330)
    names = [*(str(number) for number in range(1, 11)), "</s>"]
    drawing.matrix(70, 60, values, 23, (names[: len(values)], names[: len(values[0])]))
    return drawing.svg("Attention of the copy task")


def trainings(m: Values) -> str:
    """The loss of each training with each seed."""
    drawing = Drawing(720, 60 + 27 * len(NAMES) + 40)
    values = [value for name in NAMES for value in m[name]["loss"]]
    low, high = math.floor(2 * min(values)) / 2, math.ceil(2 * max(values)) / 2
    plot = Plot(drawing, (210, 40, 470, 27 * len(NAMES)), (low, high), (0, len(NAMES)))
    step = 0.5 if high - low > 1.5 else 0.25
    plot.axes("loss on unseen pairs, nats", "", [low + step * i for i in range(int((high - low) / step) + 1)], ())
    usual = sum(m["usual"]["loss"]) / len(m["usual"]["loss"])
    drawing.line([plot.at(usual, 0), plot.at(usual, len(NAMES))], "orange-line dashed")
    for number, (name, shown) in enumerate(NAMES.items()):
        y = 40 + 27 * number + 14
        xs = [plot.at(value, 0)[0] for value in m[name]["loss"]]
        drawing.text(200, y + 4, shown, "", "end")
        drawing.line([(210, y), (680, y)], "rule")
        drawing.line([(min(xs), y), (max(xs), y)], "blue-line")
        for x in xs:
            drawing.dot(x, y)
    return drawing.svg("Loss of all trainings, a dot for each seed")


def longer(m: Values, updates: int) -> str:
    """The mean loss of the longer trainings by update. updates: their number."""
    drawing = Drawing(720, 300)
    means = {name: [sum(of_seeds) / len(of_seeds) for of_seeds in zip(*m[name]["curve"], strict=True)] for name in m}
    top = math.ceil(max(map(max, means.values())))
    plot = Plot(drawing, (60, 40, 460, 200), (0, updates), (0, top))
    plot.axes("update", "loss on unseen pairs, nats", range(0, updates + 1, updates // 4), range(top + 1))
    for number, name in enumerate(("usual", "no positions")):
        every = updates // len(means[name])
        plot.curve(range(every, updates + 1, every), means[name], number)
        drawing.key(550, 60 + 24 * number, number, NAMES[name])
    return drawing.svg("Loss with and without positions by update, in longer trainings")


def norms(m: Values) -> str:
    """Growth of states and of gradients by layer."""
    drawing = Drawing(720, 300)
    states, gradients = ("typical entry of a state", (0, 1, 2, 3)), ("norm of the gradient", (0, 0.25, 0.5))
    for left, key, (title, ticks) in ((50, "states", states), (400, "gradients", gradients)):
        curves = m[key]
        top = 1.1 * max(map(max, curves.values()))
        count = len(curves["pre"])
        plot = Plot(drawing, (left, 50, 240, 190), (1, count), (0, top))
        plot.axes("layer", title, range(1, count + 1), ticks)
        for number, name in enumerate(("pre", "post")):
            plot.curve(range(1, count + 1), curves[name], number, name)
    return drawing.svg("States and gradients by layer, pre-norm and post-norm")


def spectrum(m: Values) -> str:
    """Singular values before and after the Newton-Schulz iteration."""
    drawing = Drawing(720, 300)
    plot = Plot(drawing, (60, 40, 540, 200), (1, 64), (0, 1.25))
    plot.axes("number of the singular value", "singular value", (1, 16, 32, 48, 64), (0, 0.5, 1))
    for number, name in enumerate(("before", "after")):
        plot.curve(range(1, 65), m[name], number)
        drawing.key(618, 60 + 24 * number, number, name)
    return drawing.svg("Singular values before and after the iteration")


def curve(rows: list[list[float]], averaged: list[int], schedule: Values) -> str:
    """Validation loss and learning rate of the recorded training. rows: step and loss. schedule: see learning_rate."""
    drawing = Drawing(720, 400)
    steps, values = zip(*rows, strict=True)
    every = range(1, steps[-1] + 1)
    rates = [learning_rate(step, **schedule) for step in every]
    plot = Plot(drawing, (60, 40, 600, 200), (0, steps[-1]), (0, 1.05 * max(values)))
    plot.axes("", "validation loss, nats per subword", (), range(int(max(values)) + 1))
    plot.curve(steps, values)
    for step, value in zip(steps, values, strict=True):
        if step in averaged:
            drawing.dot(*plot.at(step, value))
    below = Plot(drawing, (60, 285, 600, 65), (0, steps[-1]), (0, 1.1 * max(rates)))
    below.axes(
        "update",
        "learning rate",
        range(0, steps[-1] + 1, 100 * max(1, steps[-1] // 600)),
        (0, float(f"{max(rates):.1g}")),
    )
    below.curve(every, rates)
    return drawing.svg("The training on Multi30k")


def heads(layers: list[list[list[list[float]]]], kind: str, rows: list[str], columns: list[str]) -> str:
    """Maps of all layers and heads: a row of heads for each layer. rows, columns: names, at the first map of each."""
    cell, left, top = 12, 75, 75
    wide, high = cell * len(columns) + 16, cell * len(rows) + 30
    drawing = Drawing(left + wide * len(layers[0]) + 20, top + high * len(layers))
    for i, layer in enumerate(layers):
        for j, values in enumerate(layer):
            x, y = left + wide * j, top + high * i
            drawing.text(x, 16 if not i else y - 8, f"layer {i + 1}, head {j + 1}", "small muted", "start")
            drawing.matrix(x, y, values, cell, (() if j else rows, () if i else columns), largest=1.0)
    return drawing.svg(f"Attention of all layers and heads: {kind}")


def cross(m: Values) -> str:
    """The mean of the heads of the last layer, with labels."""
    maps = m["cross"][-1]
    values = [
        [sum(head[i][j] for head in maps) / len(maps) for j in range(len(maps[0][0]))] for i in range(len(maps[0]))
    ]
    drawing = Drawing(130 + 26 * len(values[0]) + 40, 110 + 24 * len(values))
    drawing.matrix(110, 95, values, 24, (m["target"], m["source"]))
    return drawing.svg("Decoder over source: mean of the heads of the last layer")
