"""Translations of a training text are made in parts, by all processes, and none is made twice."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline.training import back_translations
from pipeline.training.back_translations import Translations, added_pairs, write_tokens
from transformer.files import read_lines, write_lines
from transformer.inference.translator import Translator
from transformer.text.bpe import Merges
from transformer.text.marks import SPACE
from transformer.text.placeholders import PIECES
from transformer.text.vocabulary import SPECIALS, Vocabulary
from transformer.text.words import Side
from transformer.training.distributed import World


class Upper:
    """A translator into capital letters that fails in its translation number `fails`, from 1."""

    def __init__(self, fails: int = 0):
        self.calls, self.fails, self.lines = 0, fails, []

    def translate(self, lines: list[str], split: bool, progress: Any) -> list[str]:
        self.calls += 1
        self.lines += lines
        if self.calls == self.fails:
            raise KeyboardInterrupt
        progress(len(lines))
        return [line.upper() for line in lines]


@pytest.fixture
def translations(tmp_path: Path, monkeypatch) -> Translations:
    monkeypatch.setattr(back_translations, "PART_LINES", 3)
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


def test_each_process_translates_its_share_of_the_missing_parts(translations, monkeypatch):
    monkeypatch.setattr(World, "broadcast", lambda self, value: [0, 2, 3])
    monkeypatch.setattr(World, "wait", lambda self: None)
    translations.folder.mkdir()
    write_lines(translations.folder / "00000001.txt", ["made before"] * 3)
    translators = [Upper(), Upper()]
    for rank, translator in enumerate(translators):
        translations.make(LINES, len(LINES), translator, World(rank, 2))
    upper = [line.upper() for line in LINES]
    assert list(translations.lines()) == upper[:3] + ["made before"] * 3 + upper[6:]
    assert [translator.lines for translator in translators] == [LINES[:3] + LINES[9:], LINES[6:9]]


def test_placeholders_of_back_translations_are_numbered_anew(tmp_path):
    """By the order of the new source; a pair with a side that is too long is left out."""
    vocabulary = Vocabulary([*SPECIALS, SPACE, *PIECES, "▁a", "▁b"])
    sides = [Side(code, lowercase=code == "de", placeholders=True) for code in ("en", "de")]
    translator = Translator(None, Merges("#version: 0.2\n"), vocabulary, *sides)  # type: ignore[arg-type]
    real = SimpleNamespace(lines=np.array([4, 7]))
    pairs = added_pairs(real, iter(["b {x} %s", "b"]), iter(["%s A {x}", "a " * 7]), translator, 6)  # type: ignore[arg-type]
    expected = ["▁", "①", "▁a", "▁", "②"], ["▁b", "▁", "②", "▁", "①"]
    assert list(write_tokens(pairs, tmp_path, translator)) == [(*map(vocabulary.ids, expected), 4)]
    assert [list(read_lines(tmp_path / f"added.{side}")) for side in ("src", "tgt")] == [
        [" ".join(s)] for s in expected
    ]
