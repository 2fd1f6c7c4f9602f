"""The attention of the report page in a real browser: every choice by mouse and by keyboard, no request, no error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.attention import ATTACK, REFERENCE, SOURCE, TRANSLATION, attention_of_two, weights
from support.browsers import opened_window
from test_report import page as report_page

ROWS, COLUMNS = "[data-axis=row]", "[data-axis=column]"


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    """The report of a small run, with the attention on two sentences."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report_page(attention=attention_of_two()), encoding="utf-8")
    return path


@pytest.fixture
def view(browser, file) -> Iterator:
    """The attention of the page. At the end there was no error, and no request but for the page itself."""
    with opened_window(browser) as window:
        window.page.goto(file.as_uri())
        window.page.locator("#attention figure svg").first.wait_for()
        yield window.page.locator("#attention")
    assert window.console == []
    assert [url for url in window.asked if not url.startswith("data:image/svg+xml")] == [file.as_uri()]


def head(view, layer: int, number: int):
    """The thumbnail of a head; both numbers from 1."""
    return view.get_by_role("button", name=f"Layer {layer}, head {number}", exact=True)


def labels(view, axis: str, figure: int = 0) -> list[str]:
    """The labels of rows or columns of a figure."""
    return view.locator("figure").nth(figure).locator(axis).all_text_contents()


def table(view, number: int = 0) -> np.ndarray:
    """The weights in a table below the map, which is opened if it is closed."""
    if not view.locator("details").evaluate("element => element.open"):
        view.get_by_text("The weights as a table").click()
    view.locator("details table").nth(number).wait_for()
    rows = view.locator("details table").nth(number).locator("tbody tr").all()
    return np.array([[float(cell) for cell in row.locator("td").all_text_contents()] for row in rows])


def test_rows_and_columns_are_labelled_with_all_subwords(view):
    assert labels(view, COLUMNS) == SOURCE.subwords
    assert labels(view, ROWS) == TRANSLATION.subwords
    assert labels(view, ROWS, 1) == REFERENCE.subwords
    view.get_by_label("decoder self").check()
    assert labels(view, COLUMNS, 1) == ["<s>", *REFERENCE.subwords[:-1]]
    assert labels(view, ROWS, 1) == REFERENCE.subwords
    view.get_by_label("encoder self").check()
    assert labels(view, ROWS) == labels(view, COLUMNS) == SOURCE.subwords
    assert not view.locator("figure").nth(1).is_visible()


def test_a_sentence_is_chosen_and_its_text_stays_text(view):
    view.get_by_label("Sentence").select_option("1")
    assert labels(view, ROWS) == ATTACK.subwords
    assert view.locator("figure b").count() == 0
    assert view.locator(ROWS).nth(1).get_attribute("direction") == "rtl"
    table(view)
    assert view.locator("details th[dir=auto]").all_inner_texts()[1] == "▁مرحبا"


def test_a_subword_that_is_pointed_at_is_said_in_words(view):
    head(view, 1, 2).click()
    view.locator(ROWS).nth(1).hover()
    assert view.locator(".reading").inner_text() == "▁dog attends to ▁bell 80%, ▁Ein 5%, ▁Hund 5%, t 5%."
    view.locator("figure").first.locator(COLUMNS).nth(2).hover()
    assert view.locator(".reading").inner_text().startswith("▁bell is attended to by ▁dog 80%")


@pytest.mark.full
def test_words_are_summed_from_subwords_and_rows_still_sum_to_1(view):
    head(view, 1, 2).click()
    view.get_by_label("words, summed").check()
    assert labels(view, COLUMNS) == ["Ein", "Hund", "bellt", "</s>"]
    assert labels(view, ROWS) == ["A", "dog", "barks", "</s>"]
    summed, plain = table(view), weights(5, 5)[0, 1]
    columns = np.stack([plain[:, 0], plain[:, 1], plain[:, 2:4].sum(1), plain[:, 4]], 1)
    expected = np.stack([columns[0], columns[1], columns[2:4].mean(0), columns[4]])
    assert np.abs(summed - expected).max() < 0.0151
    assert np.abs(summed.sum(1) - 1).max() < 0.021


@pytest.mark.parametrize(("width", "scheme"), [(375, "dark"), (1280, "light")])
def test_the_page_fits_any_width_in_light_and_dark(browser, file, width, scheme):
    with opened_window(browser, viewport={"width": width, "height": 800}, color_scheme=scheme) as window:
        window.page.goto(file.as_uri())
        ink = window.page.locator("#attention figure").locator(ROWS).first
        assert ink.get_attribute("fill") == ("#23211e" if scheme == "light" else "#e8e4dc")
        assert window.page.evaluate("document.documentElement.scrollWidth") <= width
