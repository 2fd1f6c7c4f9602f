"""Pictures as SVG that are readable on light and on dark pages: boxes, arrows, curves, matrices, dots."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

STYLE = """
text { font: 13px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
.page { fill: #fff; } .muted { fill: #59636e; } .bold { font-weight: 600; } .small { font-size: 11px; }
.box { fill: #fff; stroke: #59636e; } .rule { stroke: #d1d9e0; fill: none; } .edge { stroke: #59636e; fill: none; }
.head { fill: #59636e; } .blue { fill: #2563a8; } .orange { fill: #c2560c; } .green { fill: #00805f; }
.purple { fill: #9a3f78; } .soft { fill: #dfeafa; stroke: #2563a8; } .warm { fill: #fde6d2; stroke: #c2560c; }
.cool { fill: #d7f0e6; stroke: #00805f; } .grey { fill: #eaeef2; stroke: #59636e; }
.blue-line { stroke: #2563a8; } .orange-line { stroke: #c2560c; } .green-line { stroke: #00805f; }
.blue-line, .orange-line, .green-line { fill: none; stroke-width: 2; } .dashed { stroke-dasharray: 5 4; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .page { fill: #161b22; } .muted { fill: #9aa4af; } .box { fill: #161b22; stroke: #9aa4af; }
  .rule { stroke: #353c45; } .edge { stroke: #9aa4af; } .head { fill: #9aa4af; } .blue { fill: #6fa8dc; }
  .orange { fill: #f2a65a; } .green { fill: #4cc9a0; } .purple { fill: #dd8fc0; }
  .soft { fill: #1d3554; stroke: #6fa8dc; } .warm { fill: #4d3015; stroke: #f2a65a; }
  .cool { fill: #10392d; stroke: #4cc9a0; } .grey { fill: #2b323b; stroke: #9aa4af; }
  .blue-line { stroke: #6fa8dc; } .orange-line { stroke: #f2a65a; } .green-line { stroke: #4cc9a0; }
}
"""
LINES = ("blue-line", "orange-line dashed", "green-line", "edge")


class Drawing:
    """A picture of some width and height, in pixels from the top left corner."""

    def __init__(self, width: float, height: float):
        self.width, self.height, self.parts = width, height, list[str]()

    def text(self, x: float, y: float, words: str, look: str = "", anchor: str = "middle", turn: float = 0) -> None:
        """Words whose baseline is at y. anchor: start, middle or end. turn: degrees."""
        turned = f' transform="rotate({turn:g} {x:g} {y:g})"' if turn else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" class="{look}"{turned}>{escape(words)}</text>'
        )

    def rect(self, x: float, y: float, width: float, height: float, look: str = "box", **more: float) -> None:
        """A rectangle. more: attributes of SVG, with _ for -."""
        extra = "".join(f' {name.replace("_", "-")}="{value:g}"' for name, value in more.items())
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" class="{look}"{extra}/>')

    def box(self, x: float, y: float, width: float, height: float, label: str, look: str = "box") -> None:
        """A rectangle with a label of one or more lines in its middle."""
        self.rect(x, y, width, height, look, rx=4)
        lines = label.split("\n")
        for number, line in enumerate(lines):
            self.text(x + width / 2, y + height / 2 + 4.5 + 15 * (number - (len(lines) - 1) / 2), line)

    def line(self, points: Iterable[tuple[float, float]], look: str = "edge") -> None:
        """A line through some points."""
        places = " ".join(f"{round(x, 1):g},{round(y, 1):g}" for x, y in points)
        self.parts.append(f'<polyline points="{places}" class="{look}"/>')

    def arrow(self, *points: tuple[float, float], look: str = "edge") -> None:
        """A line through some points with a head at its end."""
        self.line(points, look)
        (x0, y0), (x, y) = points[-2:]
        angle = math.atan2(y - y0, x - x0)
        sides = [(x - 8 * math.cos(angle + turn), y - 8 * math.sin(angle + turn)) for turn in (-0.4, 0.4)]
        places = " ".join(f"{a:.1f},{b:.1f}" for a, b in [(x, y), *sides])
        self.parts.append(f'<polygon points="{places}" class="head"/>')

    def dot(self, x: float, y: float, look: str = "blue", radius: float = 4) -> None:
        """A filled circle."""
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" class="{look}"/>')

    def key(self, x: float, y: float, number: int, name: str) -> None:
        """A line of a legend: what curve `number` is."""
        self.line([(x, y), (x + 30, y)], LINES[number % len(LINES)])
        self.text(x + 38, y + 4, name, "small", "start")

    def matrix(
        self,
        x: float,
        y: float,
        values: Sequence[Sequence[float]],
        cell: float,
        names: Sequence[Sequence[str]] = (),
        largest: float = 0.0,
    ) -> None:
        """A matrix as squares: blue above 0, orange below, fuller for larger. names: of the rows, of the columns.

        largest: the value that is drawn full; 0: the largest of the matrix.
        """
        largest = largest or max((abs(value) for row in values for value in row), default=1.0) or 1.0
        self.rect(x - 1, y - 1, cell * len(values[0]) + 2, cell * len(values) + 2, "rule")
        for i, row in enumerate(values):
            for j, value in enumerate(row):
                if (share := round(abs(value) / largest, 2)) > 0.02:
                    look = "blue" if value > 0 else "orange"
                    self.rect(x + j * cell, y + i * cell, cell, cell, look, fill_opacity=share)
        for i, name in enumerate(names[0] if names else ()):
            self.text(x - 6, y + (i + 0.5) * cell + 4, name, "small", "end")
        for j, name in enumerate(names[1] if len(names) > 1 else ()):
            self.text(x + (j + 0.6) * cell, y - 6, name, "small", "start", -55)

    def svg(self, title: str) -> str:
        """The picture as a file. title: what it shows, for who cannot see it."""
        size = f'width="{self.width:g}" height="{self.height:g}" viewBox="0 0 {self.width:g} {self.height:g}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title)}">'
        page = f'<rect width="{self.width:g}" height="{self.height:g}" rx="8" class="page"/>'
        return "\n".join([head, f"<style>{STYLE}</style>", page, *self.parts, "</svg>\n"])


class Plot:
    """Axes of a chart within a drawing: numbers to places."""

    def __init__(self, drawing: Drawing, place: tuple[float, float, float, float], x: tuple, y: tuple):
        """place: left, top, width and height. x, y: smallest and largest number."""
        self.drawing, self.place, self.x, self.y = drawing, place, x, y

    def at(self, x: float, y: float) -> tuple[float, float]:
        """The place of a point."""
        left, top, width, height = self.place
        share_x = (x - self.x[0]) / (self.x[1] - self.x[0])
        return left + width * share_x, top + height * (1 - (y - self.y[0]) / (self.y[1] - self.y[0]))

    def axes(self, x_title: str, y_title: str, x_ticks: Sequence[float], y_ticks: Sequence[float]) -> None:
        """Grid, numbers and titles."""
        left, top, width, height = self.place
        for tick in y_ticks:
            self.drawing.line([self.at(self.x[0], tick), self.at(self.x[1], tick)], "rule")
            self.drawing.text(left - 8, self.at(0, tick)[1] + 4, f"{tick:g}", "muted small", "end")
        for tick in x_ticks:
            self.drawing.text(self.at(tick, 0)[0], top + height + 17, f"{tick:g}", "muted small")
        self.drawing.text(left + width / 2, top + height + 36, x_title, "muted")
        self.drawing.text(left, top - 10, y_title, "muted", "start")

    def curve(self, xs: Iterable[float], ys: Iterable[float], number: int = 0, name: str = "") -> None:
        """A curve, with its name at its end."""
        points = [self.at(x, y) for x, y in zip(xs, ys, strict=True)]
        self.drawing.line(points, LINES[number % len(LINES)])
        if name:
            self.drawing.text(points[-1][0] + 8, points[-1][1] + 4, name, "small", "start")
