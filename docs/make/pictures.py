"""Make the pictures of README.md and docs/: pages, the table of runs, the stages of dvc.yaml.

    python -m pipeline pictures                  # all, in a project that has been run
    python -m pipeline pictures pipeline         # one; this one needs no browser and no results

Reads   dvc.yaml; reports/report.html, reports/experiments.html, docs/walkthrough.html; the MLflow runs of this
        project, through `python -m pipeline ui`; data/model, through `python -m pipeline serve`
Writes  docs/images/pipeline.svg and, as .png: report, attention, summary, runs, serve, walkthrough; each under 300 kB
"""

from __future__ import annotations

import argparse
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ruamel.yaml import YAML

from pipeline.workflow.stage import require, run
from transformer.files import Mistake, whole_file

IMAGES = Path("docs/images")
MOST_BYTES = 300_000
# no GPU, and nothing that would use the network
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SECONDS = 300  # for a page to be drawn
SENTENCE = "Heute wollen die Ärzte das kleine Ei nicht kaufen."  # shown by the page of `serve`
PART = "Many heads (section 3.2.2)"  # the heading of the walkthrough that is shown
# Lengths of the drawing of the stages, in pixels.
WIDTH, MARGIN, BOX, ROW, GAP = 760, 14, 146, 38, 12
STYLE = """
  text { font-family: -apple-system, "Segoe UI", "Helvetica Neue", Arial, "DejaVu Sans", sans-serif; fill: #1f2328; }
  .stage { font-size: 15px; font-weight: 600; }
  .desc { font-size: 13.5px; }
  .writes { font-size: 12.5px; fill: #59636e; }
  .box { fill: #ddeeff; stroke: #4a7fb5; }
  .arrow { stroke: #4a7fb5; stroke-width: 1.5; fill: none; }
  .head { fill: #4a7fb5; }
"""


def main() -> None:
    makers: dict[str, Callable[[], None]] = {
        "pipeline": draw_pipeline,
        "report": picture_report,
        "attention": picture_attention,
        "summary": picture_summary,
        "runs": picture_runs,
        "serve": picture_serve,
        "walkthrough": picture_walkthrough,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(makers)} (default: all)")
    names = parser.parse_args().names or list(makers)
    for name in names:
        if name not in makers:
            parser.error(f"{name!r} is not one of {', '.join(makers)}")
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name in names:
        makers[name]()


def draw_pipeline() -> None:
    """Write pipeline.svg from dvc.yaml."""
    keep("pipeline.svg", diagram(Path("dvc.yaml").read_text(encoding="utf-8")).encode())


def diagram(pipeline: str) -> str:
    """The stages of a dvc.yaml in order, as SVG: a box per stage, beside it what the stage does and writes."""
    stages = YAML(typ="safe").load(pipeline)["stages"]
    height = 2 * MARGIN + len(stages) * (ROW + GAP) - GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img">',
        "<title>The stages of dvc.yaml, in order</title>",
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
    ]
    for place, (name, stage) in enumerate(stages.items()):
        top, left, middle = MARGIN + place * (ROW + GAP), MARGIN + BOX + 18, MARGIN + BOX // 2
        parts += [
            f'<rect class="box" x="{MARGIN}" y="{top}" width="{BOX}" height="{ROW}" rx="5"/>',
            f'<text class="stage" x="{middle}" y="{top + 24}" text-anchor="middle">{escape(name)}</text>',
            f'<text class="desc" x="{left}" y="{top + 15}">{escape(stage["desc"])}</text>',
            f'<text class="writes" x="{left}" y="{top + 32}">writes {escape(", ".join(written(stage)))}</text>',
        ]
        if place:
            parts.append(f'<path class="arrow" d="M{middle} {top - GAP}v{GAP - 5}"/>')
            parts.append(f'<path class="head" d="M{middle - 5} {top - 7}h10l-5 7z"/>')
    return "\n".join([*parts, "</svg>\n"])


def written(stage: dict[str, Any]) -> list[str]:
    """The paths that a stage writes: its outs, metrics and plots."""
    listed = [out for kind in ("outs", "metrics", "plots") for out in stage.get(kind, [])]
    return [next(iter(out)) if isinstance(out, dict) else out for out in listed]


def picture_report() -> None:
    """Write report.png: the top of the report page, down to the curves of the loss."""
    with page_of("report", 1000) as tab:
        tab.locator("#chart-loss svg, #chart-loss canvas").first.wait_for()
        shown = {"x": 0, "y": 0, "width": 1000, "height": bottom(tab, "#chart-loss")}
        keep("report.png", tab.screenshot(full_page=True, clip=shown))


def picture_attention() -> None:
    """Write attention.png: the part of the report page about attention."""
    with page_of("report", 900) as tab:
        tab.locator("#attention canvas").first.wait_for()
        keep("attention.png", tab.locator("#attention").screenshot())


def picture_summary() -> None:
    """Write summary.png: the page of `python -m pipeline summary`."""
    with page_of("experiments", 1000) as tab:
        keep("summary.png", tab.screenshot(full_page=True))


@contextmanager
def page_of(name: str, width: int) -> Iterator[Any]:
    """A window with reports/<name>.html. Raises Mistake if there is none."""
    page = Path(f"reports/{name}.html")
    require(page)
    with window(width, 1200) as tab:
        tab.goto(page.resolve().as_uri())
        yield tab


def picture_serve() -> None:
    """Write serve.png: the page of `python -m pipeline serve` with a sentence of the built-in corpus."""
    with served("serve") as address, window(900, 600) as tab:
        tab.goto(f"{address}/#text={quote(SENTENCE)}")
        tab.locator(".translation:not(:empty)").first.wait_for()
        tab.locator(".source[data-weights]").first.wait_for()
        tab.locator(".target button").nth(2).hover()
        keep("serve.png", tab.screenshot(full_page=True))


def picture_walkthrough() -> None:
    """Write walkthrough.png: the part of the walkthrough about heads."""
    with window(1100, 1500) as tab:
        tab.goto(Path("docs/walkthrough.html").resolve().as_uri())
        tab.get_by_role("heading", name=PART).first.evaluate("heading => heading.scrollIntoView()")
        keep("walkthrough.png", tab.screenshot())


def picture_runs() -> None:
    """Write runs.png: MLflow's table of runs, as `make ui` opens it, without the panels around it."""
    with served("ui") as address, window(1280, 700) as tab:
        tab.goto(address)
        tab.get_by_role("columnheader", name="bleu", exact=True).first.wait_for()
        tab.get_by_role("gridcell").first.wait_for()
        for button in ("Toggle sidebar", "Hide banner", "Close"):
            if tab.get_by_role("button", name=button, exact=True).count():
                tab.get_by_role("button", name=button, exact=True).first.click()
        tab.wait_for_timeout(2000)  # the columns take the room of the panels
        last = bottom(tab, "role=row >> nth=-1")
        keep("runs.png", tab.screenshot(clip={"x": 0, "y": 0, "width": 1280, "height": min(last + 24, 700)}))


def bottom(tab: Any, selector: str) -> float:
    """Where an element ends, in pixels from the top of the window."""
    box = tab.locator(selector).first.bounding_box()
    return box["y"] + box["height"]


@contextmanager
def window(width: int, height: int) -> Iterator[Any]:
    """A window of headless Chromium. Raises Mistake if Playwright or Chromium is not installed."""
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        raise Mistake("Playwright is not installed: pip install playwright") from None
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise Mistake("Chromium is not installed (Debian: apt-get install chromium)")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=FLAGS)
        tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme="light")
        tab.set_default_timeout(SECONDS * 1000)
        yield tab
        browser.close()


@contextmanager
def served(name: str) -> Iterator[str]:
    """The address that a command with a page prints, while it runs. Raises Mistake if it does not start."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "pipeline", name, "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout
        for line in server.stdout:
            if line.startswith("http"):
                yield line.strip()
                return
        raise Mistake(f"`python -m pipeline {name}` printed no address; its message is above")
    finally:
        server.terminate()
        server.wait()


def keep(name: str, content: bytes) -> None:
    """Write a picture. Raises Mistake if it is too large for a README."""
    if len(content) > MOST_BYTES:
        raise Mistake(f"{IMAGES / name} would have {len(content):,} bytes; make it smaller than {MOST_BYTES:,}")
    with whole_file(IMAGES / name) as temporary:
        temporary.write_bytes(content)
    print(f"{IMAGES / name}: {len(content) / 1000:.0f} kB")


if __name__ == "__main__":
    run(main)
