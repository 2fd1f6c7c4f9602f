"""Catalogues and translation memories as corpora: what is translated is read, the rest is not."""

from __future__ import annotations

import gzip
from pathlib import Path

import polib
import pytest

from transformer.corpora.parallel_text import user_splits

PO = """\
# a comment
msgid ""
msgstr ""
"Language: de\\n"
"Content-Type: text/plain; charset=UTF-8\\n"

msgctxt "menu"
msgid "_File"
msgstr "_Datei"

msgid "one line\\n  two lines\\n"
msgstr "eine Zeile\\n  zwei Zeilen\\n"

msgid "wrapped\\ntext"
msgstr "Text auf einer Zeile"

msgid "a title\\n\\na text"
msgstr "ein Titel\\nein\\n\\nText"

msgid "a line\\n\\na line"
msgstr "\\neine Zeile\\neine Zeile"

msgid "%d dog"
msgid_plural "%d dogs"
msgstr[0] "%d Hund"
msgstr[1] "%d Hunde"

#, fuzzy
msgid "fuzzy"
msgstr "unscharf"

msgid "empty"
msgstr ""

#~ msgid "obsolete"
#~ msgstr "veraltet"
"""
PO_PAIRS = [
    ("_Datei", "_File"),
    ("eine Zeile", "one line"),
    ("zwei Zeilen", "two lines"),
    ("Text auf einer Zeile", "wrapped text"),
    ("ein Titel ein Text", "a title a text"),
    ("eine Zeile eine Zeile", "a line a line"),
    ("%d Hund", "%d dog"),
    ("%d Hunde", "%d dogs"),
]
TMX = """\
<?xml version="1.0"?><!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="EN-us"><seg>A <bpt i="1">&lt;b></bpt>dog<ept i="1">&lt;/b></ept> &amp; a cat</seg></tuv>
<tuv xml:lang="de-DE"><seg>Ein <hi>Hund</hi> &amp; eine Katze</seg></tuv><tuv xml:lang="fr"><seg>x</seg></tuv></tu>
<tu><tuv lang="en"><seg>only English</seg></tuv></tu>
<tu><!-- a comment --><tuv lang="en"><seg>yes</seg></tuv><tuv lang="de"><seg>ja</seg></tuv></tu>
</body></tmx>
"""


def pairs(folder: Path, split: str = "train") -> list[tuple[str, str]]:
    """The pairs of a split from German to English."""
    (texts,) = user_splits(folder, [split], "de", "en").values()
    return [pair for text in texts for pair in text.pairs()]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("train.po", PO, PO_PAIRS),
        ("train.po", PO.replace("Language: de", "Language: "), [pair[::-1] for pair in PO_PAIRS]),
        ("train.tmx", TMX, [("Ein Hund & eine Katze", "A dog & a cat"), ("ja", "yes")]),
    ],
)
def test_what_is_translated_is_read_in_either_direction(tmp_path, name, text, expected):
    (tmp_path / name).write_text(text)
    assert pairs(tmp_path) == expected
    (tmp_path / name).unlink()
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    assert pairs(tmp_path) == expected


def test_compiled_catalogues_and_folders_of_catalogues_are_read(tmp_path):
    (tmp_path / "train").mkdir()
    for name in ("b", "a"):
        (tmp_path / f"train/{name}.po").write_text(PO.replace("_File", name))
    (tmp_path / "train/notes.txt").touch()
    (tmp_path / "c.mo").write_bytes(polib.pofile(PO).to_binary())
    (tmp_path / "train/c.mo.gz").write_bytes(gzip.compress((tmp_path / "c.mo").read_bytes()))
    read = pairs(tmp_path)
    texts = [[("_Datei", name), *PO_PAIRS[1:]] for name in ("a", "b")]
    assert read[: -len(PO_PAIRS)] == [pair for text in texts for pair in text]
    assert sorted(read[-len(PO_PAIRS) :]) == sorted(PO_PAIRS)
    with pytest.raises(ValueError, match=r"catalogues in test/.* It has c\.mo, train\. "):
        user_splits(tmp_path, ["train", "test"], "de", "en")


@pytest.mark.parametrize(("forms", "expected"), [(1, ["ja", "dogs"]), (3, ["ja", "dog", "ja2", "dogs", "ja3", "dogs"])])
def test_plural_forms_translate_the_form_that_they_stand_for(tmp_path, forms, expected):
    strings = "".join(f'msgstr[{number}] "ja{number + 1 if number else ""}"\n' for number in range(forms))
    (tmp_path / "train.po").write_text(PO.split("\n\n")[0] + f'\n\nmsgid "dog"\nmsgid_plural "dogs"\n{strings}')
    assert [text for pair in pairs(tmp_path) for text in pair] == expected


RULES = {  # header -> the forms that are read, and what each translates
    "nplurals=2; plural=(n != 1);": {0: "dog", 1: "dogs"},
    "nplurals=1; plural=0;": {0: "dogs"},
    "nplurals=4; plural=(n%100==1 ? 1 : n%100==2 ? 2 : n%100==3 || n%100==4 ? 3 : 0);": {
        0: "dogs",
        1: "dog",
        2: "dogs",
        3: "dogs",
    },
    "nplurals=6; plural=n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5;": {
        1: "dog",
        3: "dogs",
        4: "dogs",
        5: "dogs",
    },
}


@pytest.mark.parametrize("rule", RULES)
def test_plural_forms_are_read_by_the_rule_of_the_header(tmp_path, rule):
    """Forms of 0 or of 2 alone may have no number in them, and are left out."""
    strings = "".join(f'msgstr[{number}] "{number}"\n' for number in range(int(rule[9])))
    head = PO.split("\n\n")[0].replace('UTF-8\\n"', f'UTF-8\\n"\n"Plural-Forms: {rule}\\n"')
    (tmp_path / "train.po").write_text(f'{head}\n\nmsgid "dog"\nmsgid_plural "dogs"\n{strings}')
    assert {int(form): text for form, text in pairs(tmp_path)} == RULES[rule]


@pytest.mark.parametrize(("text", "expected"), [("ein H", "a dog"), ("%d H", "%d dogs"), ("%s%d", "%d dogs")])
def test_a_form_for_1_and_21_translates_the_text_with_its_number(tmp_path, text, expected):
    rule = "nplurals=2; plural=n%10!=1;"
    head = PO.split("\n\n")[0].replace('UTF-8\\n"', f'UTF-8\\n"\n"Plural-Forms: {rule}\\n"')
    strings = f'msgstr[0] "{text}"\nmsgstr[1] "x"\n'
    (tmp_path / "train.po").write_text(f'{head}\n\nmsgid "a dog"\nmsgid_plural "%d dogs"\n{strings}')
    assert pairs(tmp_path)[0] == (text, expected)


@pytest.mark.parametrize(
    ("name", "text"),
    [("train.po", PO.split("\n\n")[0]), ("train.po", ""), ("train.tmx", TMX.replace('lang="de', 'lang="ja'))],
)
def test_a_file_without_translations_gets_a_remark(tmp_path, capsys, name, text):
    (tmp_path / name).write_text(text)
    assert pairs(tmp_path) == []
    assert f"{name} has no translations between de and en" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("segment", "text"),
    [
        ("Erste Zeile<ph/>Zweite\n   Zeile", "Erste Zeile Zweite Zeile"),
        (
            "<bpt i='1'>&lt;b&gt;</bpt>fett<ept i='1'>&lt;/b&gt;</ept> und <hi>schief <sub>x</sub></hi>",
            "fett und schief",
        ),
        ("<hi>" * 5_000 + "tief" + "</hi>" * 5_000, "tief"),
        ("<!-- no -->ja", "ja"),
        ("  eine\n  Zeile", "eine Zeile"),
    ],
)
def test_an_element_in_a_segment_is_a_space_and_wrapped_text_a_line(tmp_path, segment, text):
    body = f"<tu><tuv xml:lang='de'><seg>{segment}</seg></tuv><tuv xml:lang='eng'><seg>x</seg></tuv></tu>"
    (tmp_path / "train.tmx").write_text(f"<t:tmx xmlns:t='urn:tmx'><body>{body}</body></t:tmx>")
    assert pairs(tmp_path) == [(text, "x")]


def test_lines_of_a_segment_whose_space_is_preserved_are_lines(tmp_path):
    sides = "".join(
        f"<tuv xml:lang='{code}'><seg>{text}\n{text}</seg></tuv>" for code, text in (("de", "a"), ("en", "b"))
    )
    region = "<tuv xml:lang='de-AT'><seg>other</seg></tuv>"
    (tmp_path / "train.tmx").write_text(f"<tmx><body><tu xml:space='preserve'>{region}{sides}</tu></body></tmx>")
    assert pairs(tmp_path) == [("a", "b"), ("a", "b")]


@pytest.mark.parametrize("name", ["train.xliff", "train.de.srt", "train.de.zst", "train.tex", "train.ini"])
def test_a_known_format_that_is_not_read_names_its_converter(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(ValueError, match=rf"{name} cannot be read. Convert it, and"):
        user_splits(tmp_path, ["train"], "de", "en")


@pytest.mark.parametrize(("code", "own"), [("deu", "de"), ("de_AT", "de"), ("ca@valencia", "ca"), ("sr@latin", "sr")])
def test_a_language_is_what_its_code_means(tmp_path, code, own):
    (tmp_path / "train.po").write_text(PO.replace("Language: de", f"Language: {code}"))
    (texts,) = user_splits(tmp_path, ["train"], own, "en").values()
    assert list(texts[0].pairs()) == PO_PAIRS


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.po", PO.replace("de\\n", "fr\\n"), r"train\.po has translations from \? to fr, not between de and en"),
        ("train.po", PO.replace('msgid "_F', 'msgxd "_F'), r"train\.po is damaged \(.*line \d+"),
        ("train.po", PO.replace('"_Datei"', '"_Datei'), r"train\.po is damaged \(line 9: a string without end"),
        ("train.mo", "no catalogue", r"train\.mo is damaged"),
        ("train.mo", "", r"train\.mo is damaged"),
        ("train.tmx", TMX.replace("&amp;", "&nbsp;"), r"undefined entity.*line 3, .*in XML, .*&nbsp; is &#160;"),
        ("train.tmx", TMX[:-9], r"train\.tmx is damaged \(unclosed token: line 7"),
        ("train.tmx", TMX.replace("cat", "cat" * 400_000), r"train\.tmx: a line of more than 1,000,000 bytes"),
    ],
)
def test_a_damaged_or_foreign_file_is_refused(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        pairs(tmp_path)
