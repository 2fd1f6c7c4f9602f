"""Catalogues, translation memories and subtitles as corpora: what is translated is read, the rest is not."""

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
XLIFF = """\
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file source-language="en" target-language="de-AT"><body>
<trans-unit id="1"><source>A <g id="1">dog</g><x id="2"/></source><target>Ein <g id="1">Hund</g></target></trans-unit>
<trans-unit id="2"><source>new</source><target state="needs-translation">new</target></trans-unit>
<trans-unit id="3"><source>none</source></trans-unit>
<trans-unit id="4"><source>none</source><target/></trans-unit>
</body></file></xliff>
"""
XLIFF2 = """\
<xliff version="2.0" srcLang="de" trgLang="en" xmlns="urn:oasis:names:tc:xliff:document:2.0"><file id="f"><unit id="1">
<segment state="final"><source>ja<ph id="1"/></source><target>yes</target></segment>
<segment state="initial"><source>nein</source><target>no</target></segment></unit></file></xliff>
"""
SRT = """\
\ufeff1
00:00:01,000 --> 00:00:02,000
- {0}
- Nein

2
00:00:03.5 --> 00:00:04.5 X1:1
{1}

3
00:00:05,0 --> 00:00:06,0
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
        ("train.xliff", XLIFF, [("Ein Hund", "A dog")]),
        ("train.po.xliff", XLIFF, [("Ein Hund", "A dog")]),
        ("train.xlf", XLIFF2, [("ja", "yes")]),
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


def test_subtitles_are_read_cue_by_cue(tmp_path):
    """Also if a file lacks the empty line between two."""
    (tmp_path / "train.de.srt").write_text(SRT.format("Ja", "Ein\nHund").replace("\n\n2", "\n2"))
    (tmp_path / "train.en.srt").write_text(SRT.format("Yes", "A dog").replace("\n", "\r\n"), newline="")
    assert pairs(tmp_path) == [("- Ja - Nein", "- Yes - Nein"), ("Ein Hund", "A dog"), ("", "")]
    (tmp_path / "train.en.srt").write_text(SRT.format("Yes", "A dog") + "\n4\n00:00:07,0 --> 00:00:08,0\nX\n")
    with pytest.raises(ValueError, match=r"train\.en\.srt has 4 lines and .*train\.de\.srt 3, 1 fewer"):
        pairs(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.po", PO.replace("de\\n", "fr\\n"), r"train\.po has translations from \? to fr, not between de and en"),
        ("train.po", PO.replace('msgid "_F', 'msgxd "_F'), r"train\.po is damaged \(.*line \d+"),
        ("train.po", PO.split("\n\n")[0], r"train\.po has no translations between de and en"),
        ("train.mo", "no catalogue", r"train\.mo is damaged"),
        ("train.tmx", TMX[:-9], r"train\.tmx is damaged \(unclosed token: line 7"),
        ("train.tmx", TMX.replace('lang="de', 'lang="ja'), r"train\.tmx has no translations between de and en"),
        ("train.tmx", TMX.replace("cat", "cat" * 400_000), r"train\.tmx: a line of more than 1,000,000 bytes"),
        ("train.xlf", XLIFF2.replace("trgLang", "x"), None),
        ("train.xlf", XLIFF2.replace('srcLang="de"', 'srcLang="ja"'), "from ja to en, not between de and en"),
    ],
)
def test_a_damaged_or_foreign_file_is_refused(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    if message is None:
        assert pairs(tmp_path) == [("ja", "yes")]
        return
    with pytest.raises(ValueError, match=message):
        pairs(tmp_path)
