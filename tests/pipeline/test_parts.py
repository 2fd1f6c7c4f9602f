"""Translations of a training text are made in parts, by all processes, and none is made twice."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pipeline.training import translate_text
from pipeline.training.translate_text import Translations
from transformer.training.distributed import World


class Upper:
    """A translator into capital letters that fails in its translation number `fails`, from 1."""

    def __init__(self, fails: int = 0):
        self.calls, self.fails = 0, fails

    def translate(self, lines: list[str], progress: Any) -> list[str]:
        self.calls += 1
        if self.calls == self.fails:
            raise KeyboardInterrupt
        progress(len(lines))
        return [line.upper() for line in lines]


@pytest.fixture
def translations(tmp_path: Path, monkeypatch) -> Translations:
    monkeypatch.setattr(translate_text, "PART_LINES", 3)
    return Translations(tmp_path / "parts")


LINES = [f"line {number}" for number in range(10)]


def test_parts_that_are_on_the_disk_are_not_translated_again(translations):
    first, second = Upper(fails=3), Upper()
    with pytest.raises(KeyboardInterrupt):
        translations.make(LINES, len(LINES), first, World())
    assert list(translations.lines()) == [line.upper() for line in LINES[:6]]
    translations.make(LINES, len(LINES), second, World())
    assert list(translations.lines()) == [line.upper() for line in LINES]
    assert second.calls == 2


def test_parts_made_with_other_code_or_text_are_removed(translations, tmp_path):
    (tmp_path / "translations-older").mkdir()
    translations.make(LINES, len(LINES), Upper(), World())
    assert not (tmp_path / "translations-older").exists()
    assert translations.folder.exists()


def test_each_process_translates_its_share_of_the_missing_parts_and_waits_for_the_others(translations, monkeypatch):
    """Two threads are the processes."""
    monkeypatch.setattr(World, "sum", lambda self, tensor: tensor)
    monkeypatch.setattr(World, "from_leader", lambda self, value: list(range(4)))
    translators = [Upper(), Upper()]
    with ThreadPoolExecutor(2) as pool:
        made = [pool.submit(translations.make, LINES, len(LINES), translator, World(rank, 2))
                for rank, translator in enumerate(translators)]  # fmt: skip
        for one in made:
            one.result(timeout=30)
    assert [translator.calls for translator in translators] == [2, 2]
    assert list(translations.lines()) == [line.upper() for line in LINES]
