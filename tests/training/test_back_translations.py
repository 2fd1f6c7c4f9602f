"""Translations of a training text are made in parts, by all processes, and none is made twice."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from support.tiny import ROOT

from pipeline.training import back_translations
from pipeline.training.back_translations import MonoText, Translations, added_pairs, write_tokens
from pipeline.workflow.params import Params
from transformer.corpora.rules import FilterConfig
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
    assert list(translations.pairs(10)) == [(line.upper(), line) for line in LINES[:6]]
    translations.make(LINES, len(LINES), second, World())
    assert list(translations.pairs(10)) == [(line.upper(), line) for line in LINES]
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
    for path in translations.parts(6)[1]:
        write_lines(path, ["made before"] * 3)
    translators = [Upper(), Upper()]
    for rank, translator in enumerate(translators):
        translations.make(LINES, len(LINES), translator, World(rank, 2))
    upper = [line.upper() for line in LINES]
    assert [source for source, _ in translations.pairs(10)] == upper[:3] + ["made before"] * 3 + upper[6:]
    assert [translator.lines for translator in translators] == [LINES[:3] + LINES[9:], LINES[6:9]]


def test_placeholders_of_back_translations_are_numbered_anew(tmp_path):
    """By the order of the new source; a pair with a side that is too long is left out."""
    vocabulary = Vocabulary([*SPECIALS, SPACE, *PIECES, "▁a", "▁b"])
    sides = [Side(code, lowercase=code == "de", placeholders=True) for code in ("en", "de")]
    translator = Translator(None, Merges("#version: 0.2\n"), vocabulary, *sides)  # type: ignore[arg-type]
    numbered = [("%s A {x}", "b {x} %s", 4), ("a " * 7, "b", 7)]
    pairs = added_pairs(numbered, translator, 6)
    expected = ["▁", "①", "▁a", "▁", "②"], ["▁b", "▁", "②", "▁", "①"]
    assert list(write_tokens(pairs, tmp_path, translator)) == [(*map(vocabulary.ids, expected), 4)]
    assert [list(read_lines(tmp_path / f"added.{side}")) for side in ("src", "tgt")] == [
        [" ".join(s)] for s in expected
    ]


class Counted(Upper):
    """A translator into capital letters whose tokens are single letters, and that lacks an "x" in its translations."""

    merges = Merges("#version: 0.2\n")

    def __init__(self, fails: int = 0):
        super().__init__(fails)
        self.source = self.target = Side("en", lowercase=False, splitter="unicode")

    def translate(self, lines: list[str], split: bool, progress: Any) -> list[str]:
        return [line.replace("X", "") for line in super().translate(lines, split, progress)]

    def subwords(self, lines: list[str]) -> list[list[str]]:
        return [line.split() for line in lines]


@pytest.fixture
def mono(tmp_path):
    """A function: translator and number of pairs to a MonoText; its lines 2, 3, 6 and 7 give no pair."""
    lines = ["eins", "x", "eins", "zwei", "drei", "", "viel zu lange Zeile", "vier", "fünf", "sechs"]
    with gzip.open(tmp_path / "mono.de.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join([*lines, *(f"mehr {letter}" for letter in "abcdefgh")]) + "\n")
    config = Params.load(ROOT / "recipes/toy.yaml").changed(filter_duplicates="pair").take(FilterConfig)
    return lambda translator, wanted: MonoText(tmp_path / "mono.de.gz", translator, wanted, config, ("en", "de"), 3)


def test_a_text_is_read_until_it_gives_the_pairs_that_are_wanted(translations, mono):
    text = mono(translator := Counted(), 4)
    assert text.translate(translations, World()) == 9  # of 6 lines three are left, of the next three one
    pairs = list(text.pairs(translations, 9))
    assert [(pair.target, pair.line) for pair in pairs] == [
        (["▁eins"], 1),
        (["▁zwei"], 4),
        (["▁drei"], 5),
        (["▁vier"], 8),
    ]
    assert [pair.source for pair in pairs] == [["<s>", token] for token in ("▁EINS", "▁ZWEI", "▁DREI", "▁VIER")]
    assert "viel zu lange Zeile" not in translator.lines
    assert len(list(mono(translator, 99).pairs(translations, 9))) == 5
    assert mono(more := Counted(), 99).translate(translations, World()) == 18  # the text has no more
    assert more.calls == 3


def test_a_text_that_was_killed_is_read_on(translations, mono):
    with pytest.raises(KeyboardInterrupt):
        mono(Counted(fails=3), 4).translate(translations, World())
    assert mono(second := Counted(), 4).translate(translations, World()) == 9
    assert second.calls == 1
