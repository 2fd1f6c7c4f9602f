"""The report in headless Chromium: its table is sorted, searched and filtered, also in MLflow's frame, offline."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.browsers import chromium
from support.tiny import ROOT
from test_report import run_report

from transformer.evaluation.buckets import Bucket
from transformer.reporting import page as report

ROWS, HEADS = "#sentences tbody tr", "#sentences thead button"


class Tab(NamedTuple):
    """A window with a page, what its console said, and the addresses that it asked for."""

    page: Any
    said: list[str]
    asked: list[str]

    def open(self, path: Path) -> None:
        self.page.goto(path.as_uri())

    def column(self, number: int) -> list[str]:
        """The texts of a column of the table, from 1."""
        return self.page.locator(f"{ROWS} td:nth-child({number})").all_inner_texts()


@pytest.fixture(scope="module")
def browser() -> Iterator:
    with chromium() as found:
        yield found


@pytest.fixture
def tab(browser) -> Iterator[Tab]:
    """A window that fails the test if the page reports an error or makes a request."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    made = Tab(page, [], [])
    page.on("console", lambda message: made.said.append(message.text))
    page.on("pageerror", lambda error: made.said.append(str(error)))
    page.on("request", lambda request: made.asked.append(request.url))
    yield made
    page.close()
    assert made.said == []
    assert [url for url in made.asked if not url.startswith(("file:", "about:"))] == []


def written(folder: Path, **changed) -> Path:
    """A report in a file."""
    shown = run_report(**changed)
    path = folder / "report.html"
    path.write_text(report.page(shown, report.charts_of(shown)), encoding="utf-8")
    return path


def many(count: int) -> dict[str, list[str]]:
    """Sentences of 1 to 20 words; each tenth translation lacks a word."""
    lines = [" ".join(["w", *[f"x{place}" for place in range(n % 20)]]) + f" n{n}" for n in range(count)]
    return {
        "sources": lines,
        "references": lines,
        "hypotheses": [line if n % 10 else line.replace("w", "v") for n, line in enumerate(lines)],
    }


def test_the_table_starts_with_the_worst_and_is_sorted_by_each_column_and_back(tab, tmp_path):
    tab.open(written(tmp_path))
    tab.page.wait_for_selector(ROWS)
    scores = [float(score) for score in tab.column(2)]
    assert scores == sorted(scores)
    assert scores[0] < 100
    line = tab.page.locator(HEADS, has_text="Line")
    line.click()
    assert tab.column(1) == [str(number) for number in range(1, 41)]
    line.press("Enter")
    assert tab.column(1) == [str(number) for number in range(60, 20, -1)]
    heads = tab.page.locator("#sentences thead th")
    assert [head.get_attribute("aria-sort") for head in heads.all()] == ["descending", *["none"] * 5]
    tab.page.locator(HEADS, has_text="Hypothesis").click()
    assert tab.column(6)[0] == "Sentence 0 was here."


def test_the_table_is_searched_and_filtered_by_length_and_says_how_many_are_left(tab, tmp_path):
    tab.open(written(tmp_path, **many(100)))
    tab.page.wait_for_selector(ROWS)
    status = tab.page.get_by_role("status")
    assert status.inner_text() == "100 of 100 sentences"
    tab.page.get_by_label("Words from").fill("19")
    assert set(tab.column(3)) == {"19", "20", "21"}
    assert status.inner_text() == "15 of 100 sentences"
    tab.page.get_by_label("to", exact=True).fill("19")
    assert set(tab.column(3)) == {"19"}
    tab.page.get_by_label("Search").fill(" N37 ")
    assert tab.column(1) == ["38"]
    tab.page.get_by_label("Search").fill("nothing like it")
    assert tab.column(1) == []
    assert status.inner_text() == "0 of 100 sentences"


def test_ten_thousand_sentences_are_sorted_and_searched_at_once_and_made_when_scrolled_to(tab, tmp_path):
    tab.open(written(tmp_path, **many(10_000)))
    tab.page.wait_for_selector(ROWS)
    assert len(tab.page.locator(ROWS).all()) == 40
    assert tab.page.locator("#sentences").get_attribute("aria-rowcount") == "10001"
    tab.page.locator(".scroll").evaluate("area => area.scrollTop = area.scrollHeight")
    tab.page.wait_for_function("document.querySelectorAll('#sentences tbody tr').length > 40")
    used = tab.page.evaluate("""() => { const start = performance.now();
        document.querySelector('#sentences thead button').click(); return performance.now() - start; }""")
    assert used < 2000  # about 20 ms on an idle machine
    assert len(tab.page.locator(ROWS).all()) == 40


def test_words_that_differ_are_marked_and_text_of_the_corpus_stays_text(tab, tmp_path):
    attack = "<img src=x onerror=alert(1)> a"
    tab.open(written(tmp_path, sources=[attack, ""], references=[attack, "ist da"], hypotheses=["<b> a", ""]))
    tab.page.wait_for_selector(ROWS)
    tab.page.locator(HEADS, has_text="Line").click()
    assert tab.column(4) == [attack, "empty"]
    assert tab.page.locator(f"{ROWS} td.hypothesis mark").all_inner_texts() == ["<b>"]
    assert tab.page.locator(f"{ROWS} td.reference mark").all_inner_texts() == [*attack.split()[:3], "ist", "da"]
    assert tab.page.locator("#sentences img").count() == 0


def test_the_marked_words_are_those_that_differ_whatever_space_is_between_them(tab, tmp_path):
    # U+FEFF is a space in JavaScript alone, U+0085 and U+001F in Python alone
    spaces = "".join(chr(code) for code in range(0x10000) if chr(code).isspace())
    pairs = [
        ("one\ufefftwo three four five", "one\ufefftwo three four FIVE"),
        ("alpha\x85beta gamma delta",) * 2,
        ("a\x1fb c d", "a\x1fb c D"),
        (spaces.join("abcd"), spaces.join("abcD")),
    ]
    pairs[1] = (pairs[1][0], pairs[1][1].replace("delta", "DELTA"))
    references, hypotheses = map(list, zip(*pairs, strict=True))
    tab.open(written(tmp_path, sources=references, references=references, hypotheses=hypotheses))
    tab.page.locator(HEADS, has_text="Line").click()
    assert tab.page.locator(f"{ROWS} td.hypothesis mark").all_text_contents() == ["FIVE", "DELTA", "D", "D"]
    assert tab.page.locator(f"{ROWS} td.reference mark").all_text_contents() == ["five", "delta", "d", "d"]


def test_the_picture_of_the_report_ends_below_the_curves_of_the_loss(tab, tmp_path):
    buckets = [Bucket(str(number), 30, 50.0, 2.0) for number in range(40)]  # a table higher than a window
    written(tmp_path, buckets={"words of the source": buckets}).rename(tmp_path / "page.html")
    (tmp_path / "reports").mkdir()
    (tmp_path / "page.html").rename(tmp_path / "reports/report.html")
    command = [sys.executable, "-m", "pipeline", "pictures", "report"]
    subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    tab.page.set_viewport_size({"width": 1000, "height": 1700})
    tab.open(tmp_path / "reports/report.html")
    tab.page.locator("#chart-loss svg").wait_for()
    box = tab.page.locator("#chart-loss").bounding_box()
    height = int.from_bytes((tmp_path / "docs/images/report.png").read_bytes()[20:24], "big")  # PNG: IHDR
    assert height > 1700
    assert height == pytest.approx(box["y"] + box["height"], abs=2)


def test_the_legend_of_the_losses_fits_a_phone(tab, tmp_path):
    tab.page.set_viewport_size({"width": 375, "height": 800})
    tab.open(written(tmp_path))
    drawing = tab.page.locator("#chart-loss svg")
    drawing.wait_for()
    ends = drawing.locator("text").evaluate_all("all => all.map(one => one.getBoundingClientRect().right)")
    box = drawing.bounding_box()
    assert max(ends) <= box["x"] + box["width"]


def test_text_from_right_to_left_is_set_so_and_has_its_language(tab, tmp_path):
    arabic = ["هذا كلب صغير"]
    params = run_report().params | {"target": "ar"}
    tab.open(written(tmp_path, references=arabic, hypotheses=arabic, sources=["Ein Hund"], params=params))
    cell = tab.page.locator(f"{ROWS} td.hypothesis")
    assert cell.evaluate("cell => [getComputedStyle(cell).direction, cell.lang]") == ["rtl", "ar"]
    assert tab.page.locator(f"{ROWS} td.source").evaluate("cell => getComputedStyle(cell).direction") == "ltr"


def test_the_page_works_in_the_sandboxed_frame_of_mlflow(tab, tmp_path):
    path = written(tmp_path)
    frame = tmp_path / "frame.html"
    frame.write_text('<meta charset="utf-8"><iframe sandbox="allow-scripts" width="900" height="800"></iframe>')
    tab.open(frame)
    tab.page.evaluate("text => document.querySelector('iframe').srcdoc = text", path.read_text(encoding="utf-8"))
    inside = tab.page.frame_locator("iframe")
    inside.locator("#chart-loss svg").wait_for()
    inside.locator(HEADS, has_text="Line").click()
    assert inside.locator(f"{ROWS} td:nth-child(1)").first.inner_text() == "1"


@pytest.mark.parametrize("width", [375, 800, 1280])
def test_the_page_is_as_wide_as_the_window(tab, tmp_path, width):
    tab.page.set_viewport_size({"width": width, "height": 800})
    tab.open(written(tmp_path))
    tab.page.locator("#chart-loss svg").wait_for()
    tab.page.wait_for_selector(ROWS)
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
    for head in ("Line", "Hypothesis"):
        assert tab.page.locator(HEADS, has_text=head).is_visible()
