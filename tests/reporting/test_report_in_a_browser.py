"""The report in headless Chromium: its table is sorted, searched and filtered, also in MLflow's frame, offline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from test_report import run_report

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


@pytest.fixture
def tab(browser) -> Iterator[Tab]:
    """A window that fails the test if the page reports an error or makes a request."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    window = Tab(page, [], [])
    page.on("console", lambda message: window.said.append(message.text))
    page.on("pageerror", lambda error: window.said.append(str(error)))
    page.on("request", lambda request: window.asked.append(request.url))
    yield window
    page.close()
    assert window.said == []
    assert [url for url in window.asked if not url.startswith(("file:", "about:"))] == []


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


def test_the_table_starts_with_the_worst_and_can_be_sorted(tab, tmp_path):
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


@pytest.mark.full
def test_the_table_is_searched_and_filtered_by_length(tab, tmp_path):
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


def test_words_that_differ_are_marked_and_text_stays_text(tab, tmp_path):
    attack = "<img src=x onerror=alert(1)> a"
    tab.open(written(tmp_path, sources=[attack, ""], references=[attack, "ist da"], hypotheses=["<b> a", ""]))
    tab.page.wait_for_selector(ROWS)
    tab.page.locator(HEADS, has_text="Line").click()
    assert tab.column(4) == [attack, "empty"]
    assert tab.page.locator(f"{ROWS} td.hypothesis mark").all_inner_texts() == ["<b>"]
    assert tab.page.locator(f"{ROWS} td.reference mark").all_inner_texts() == [*attack.split()[:3], "ist", "da"]
    assert tab.page.locator("#sentences img").count() == 0
