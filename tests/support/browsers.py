"""A headless Chromium for tests of pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from docs.make.pictures import FLAGS


@contextmanager
def chromium() -> Iterator[Any]:
    """Debian's Chromium, driven by Playwright; skips the test if one of them is not installed."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium)")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


class Window(NamedTuple):
    """A window of a browser: its page, the lines and errors of its console, and the addresses that it asks for."""

    page: Any
    console: list[str]
    asked: list[str]


@contextmanager
def opened_window(browser: Any, **settings: Any) -> Iterator[Window]:
    """A new window, which is closed at the end. settings: its size, its colours."""
    page = browser.new_page(**{"viewport": {"width": 1280, "height": 900}, **settings})
    page.set_default_timeout(300_000)  # on a busy machine an answer takes minutes
    window = Window(page, [], [])
    page.on("console", lambda message: window.console.append(message.text))
    page.on("pageerror", lambda error: window.console.append(str(error)))
    page.on("request", lambda request: window.asked.append(request.url))
    yield window
    page.close()
