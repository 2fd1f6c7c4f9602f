"""The terms of a glossary have the translations that it gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tiny import TEXT, model_folder

from transformer import Translator
from transformer.files import Mistake
from transformer.inference.glossary import Glossary


def test_the_longest_term_is_marked_as_a_word_of_its_own():
    glossary = Glossary({"file": "Datei", "file system": "Dateisystem", "C++": "C++", "a.b": "x"})
    line = "A file, the file system, a profile, File, C++; aXb"
    marked = glossary.mark(line)
    assert marked == 'A <term id="0"/>, the <term id="1"/>, a profile, File, <term id="2"/>; aXb'
    assert glossary.fill(line, marked) == "A Datei, the Dateisystem, a profile, File, C++; aXb"


@given(st.text(alphabet='<term id="0123/> ', max_size=40))
def test_a_line_that_looks_marked_stays_as_it_is(line):
    glossary = Glossary({"term": "x", "2": "y"})
    assert "<term id" not in line or glossary.fill(line, glossary.mark(line)) in (line, line.replace("2", "y"))


def test_terms_inside_placeholders_are_left_alone():
    glossary = Glossary({"file": "Datei"})
    for line in (
        "%(file)s",
        "{file}",
        "https://example.org/file",
        "<a href='file'>",
        "$file",
        "--file",
        "&file",
        "_file",
        "a_file",
        "A&file",
    ):
        assert glossary.mark(line) == line


def test_a_line_has_no_more_terms_than_placeholders():
    glossary, words = Glossary({"dog": "Hund"}), "<b> " * 15
    assert glossary.mark("a dog \u2460") == "a dog \u2460"
    assert glossary.mark(f"{words}dog dog") == f'{words}<term id="0"/> dog'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\nc\n", r"terms:2: 'c' must be a term, a tab and its translation"),
        ("a\t\n", "terms:1"),
        ("R&D\tb\n", r"terms:1: 'R&D' has the placeholder '&'"),
        ("a\tb\n\na\tc\n", r"terms:3: 'a' has the translation 'b' too"),
        ("\n", "has no terms"),
    ],
)
def test_a_wrong_glossary_is_refused_with_its_line(tmp_path, text, message):
    (tmp_path / "terms").write_text(text)
    with pytest.raises(Mistake, match=message):
        Glossary.load(tmp_path / "terms")


def test_a_glossary_needs_a_model_with_placeholders(tmp_path):
    (tmp_path / "terms").write_text("Hund\thound\n")
    with pytest.raises(Mistake, match="has no placeholders"):
        Translator.load(model_folder(tmp_path / "model"), glossary=tmp_path / "terms")


def test_the_only_word_of_a_line_is_a_term(tmp_path):
    (tmp_path / "terms").write_text(f"{TEXT[0]}\thound\n")
    folder = model_folder(tmp_path / "model")
    translator = Translator.load(folder)
    translator.source.placeholders = True
    translator.glossary = Glossary.load(tmp_path / "terms")
    assert translator.translate([TEXT[0]], split=False) == ["hound"]
