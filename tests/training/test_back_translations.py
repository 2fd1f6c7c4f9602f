"""Translations of a training text are made in parts, by all processes, and none is made twice."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.tiny import tiny_model

from pipeline.training import back_translations
from pipeline.training.back_translations import Translations, added_pairs
from transformer.files import write_lines
from transformer.inference.translator import Translator
from transformer.text.bpe import Merges
from transformer.text.marks import SPACE
from transformer.text.placeholders import NUMBERS
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


def test_placeholders_of_back_translations_are_numbered_anew():
    """By the order of the new source; a pair with a side that is too long is left out."""
    vocabulary = Vocabulary([*SPECIALS, SPACE, *NUMBERS, "▁a", "▁b"])
    sides = [Side(code, lowercase=code == "de", placeholders=True) for code in ("en", "de")]
    translator = Translator(None, Merges("#version: 0.2\n"), vocabulary, *sides)  # type: ignore[arg-type]
    numbered = [("%s A {x}", "b {x} %s", 4), ("a " * 7, "b", 7)]
    source, target = map(vocabulary.ids, (["▁", "①", "▁a", "▁", "②"], ["▁b", "▁", "②", "▁", "①"]))
    assert list(added_pairs(numbered, translator, 6)) == [(source, target, 4)]
    assert list(added_pairs(numbered, translator, 4)) == []


def test_the_model_that_translates_back_is_the_mean_of_the_last_third(monkeypatch):
    model = tiny_model()
    averaged: list[str] = []
    monkeypatch.setattr(
        back_translations, "mean_weights", lambda paths: (averaged.extend(paths), model.state_dict())[1]
    )
    corpus = {"source": "de", "target": "en", "lowercase": False, "lowercase_source": False}
    vocabulary = Vocabulary([*SPECIALS, "▁a"])
    training = SimpleNamespace(model_config=model.config, corpus=corpus, vocabulary=vocabulary)
    monkeypatch.setattr(Merges, "load", lambda path: Merges("#version: 0.2\n"))
    store = SimpleNamespace(weights=lambda step: f"weights {step}")
    state = SimpleNamespace(checkpoints={str(step): [0.0] for step in (10, 20, 30, 40, 50, 60)})
    translator = back_translations.back_translator(training, store, state, Path(), World())  # type: ignore[arg-type]
    assert averaged == ["weights 50", "weights 60"]
    assert (translator.source.language, translator.target.language) == ("en", "de")
