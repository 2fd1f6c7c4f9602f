"""The report in headless Chromium: its table is sorted, searched and filtered, also in MLflow's frame, offline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.browsers import opened_window
from test_report import page

ROWS, HEADS = "#sentences tbody tr", "#sentences thead button"


@pytest.fixture
def tab(browser) -> Iterator[Any]:
    """A page in a window; the test fails if it reports an error or makes a request."""
    with opened_window(browser) as window:
        yield window.page
    assert window.console == []
    assert [url for url in window.asked if not url.startswith(("file:", "about:"))] == []


def show(tab: Any, folder: Path, **changed) -> None:
    """Open a report, with some of its values changed."""
    path = folder / "report.html"
    path.write_text(page(**changed), encoding="utf-8")
    tab.goto(path.as_uri())
    tab.wait_for_selector(ROWS)


def column(tab: Any, number: int) -> list[str]:
    """The texts of a column of the table, from 1."""
    return tab.locator(f"{ROWS} td:nth-child({number})").all_inner_texts()


def many(count: int) -> dict[str, list[str]]:
    """Sentences of 1 to 20 words; each tenth translation lacks a word."""
    lines = [" ".join(["w", *[f"x{place}" for place in range(n % 20)]]) + f" n{n}" for n in range(count)]
    return {
        "sources": lines,
        "references": lines,
        "hypotheses": [line if n % 10 else line.replace("w", "v") for n, line in enumerate(lines)],
    }


def test_the_table_starts_with_the_worst_and_can_be_sorted(tab, tmp_path):
    show(tab, tmp_path)
    scores = [float(score) for score in column(tab, 2)]
    assert scores == sorted(scores)
    assert scores[0] < 100
    line = tab.locator(HEADS, has_text="Line")
    line.click()
    assert column(tab, 1) == [str(number) for number in range(1, 41)]
    line.press("Enter")
    assert column(tab, 1) == [str(number) for number in range(60, 20, -1)]
    heads = tab.locator("#sentences thead th")
    assert [head.get_attribute("aria-sort") for head in heads.all()] == ["descending", *["none"] * 5]
    tab.locator(HEADS, has_text="Hypothesis").click()
    assert column(tab, 6)[0] == "Sentence 0 was here."


@pytest.mark.full
def test_the_table_is_searched_and_filtered_by_length(tab, tmp_path):
    show(tab, tmp_path, **many(100))
    status = tab.get_by_role("status")
    assert status.inner_text() == "100 of 100 sentences"
    tab.get_by_label("Words from").fill("19")
    assert set(column(tab, 3)) == {"19", "20", "21"}
    assert status.inner_text() == "15 of 100 sentences"
    tab.get_by_label("to", exact=True).fill("19")
    assert set(column(tab, 3)) == {"19"}
    tab.get_by_label("Search").fill(" N37 ")
    assert column(tab, 1) == ["38"]
    tab.get_by_label("Search").fill("nothing like it")
    assert column(tab, 1) == []
    assert status.inner_text() == "0 of 100 sentences"


def test_words_that_differ_are_marked_and_text_stays_text(tab, tmp_path):
    attack = "<img src=x onerror=alert(1)> a"
    show(tab, tmp_path, sources=[attack, ""], references=[attack, "ist da"], hypotheses=["<b> a", ""])
    tab.locator(HEADS, has_text="Line").click()
    assert column(tab, 4) == [attack, "empty"]
    assert tab.locator(f"{ROWS} td.hypothesis mark").all_inner_texts() == ["<b>"]
    assert tab.locator(f"{ROWS} td.reference mark").all_inner_texts() == [*attack.split()[:3], "ist", "da"]
    assert tab.locator("#sentences img").count() == 0
