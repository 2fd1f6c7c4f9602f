"""Catalogues: what is not translated is filled and marked, all else stays byte for byte."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import polib
import pytest

from transformer.inference.documents import is_document, read_document
from transformer.text.formats import CONVERTERS, OPTIONS

PO = """\
# a comment
msgid ""
msgstr ""
"X-Own: 1\\n"
"Language: de\\n"
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"

#: file.c:3
msgctxt "menu"
msgid "File"
msgstr "Da"
"tei"

#: file.c:4
#, c-format
msgid "Usage:\\n  -a  all %s\\n"
msgstr ""

#, fuzzy
#| msgid "old"
msgid "fuzzy"
msgstr "unscharf"

msgid "a dog"
msgid_plural "dogs"
msgstr[0] ""
msgstr[1] ""

#, fuzzy
#~| msgid "gone"
#~ msgid "obsolete"
#~ msgstr "veraltet"

#~ msgid "gone too"
#~ msgstr ""
"""
FILLED = (
    PO.replace("#, c-format", "#, c-format, fuzzy")
    .replace('all %s\\n"\nmsgstr ""', 'all %s\\n"\nmsgstr ""\n"USAGE:\\n"\n"  -A  ALL %S\\n"')
    .replace('msgid "a dog"', '#, fuzzy\nmsgid "a dog"')
    .replace('[0] ""', '[0] "A DOG"')
    .replace('[1] ""', '[1] "DOGS"')
)
RULES = {  # header -> the forms that are translated as the singular
    "nplurals=2; plural=(n != 1);": [0],
    "nplurals=2; plural=n > 1;": [0],
    "nplurals=1; plural=0;": [],
    "nplurals=3; plural=(n==1 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);": [0],
    "nplurals=4; plural=(n%100==1 ? 1 : n%100==2 ? 2 : n%100==3 || n%100==4 ? 3 : 0);": [1],
    "nplurals=6; plural=n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5;": [1],
    "nplurals=3; plural=no rule;": [0],
}
RULES_OF_MANY = {  # header -> the forms that are translated as "a dog" where the plural is "%d dogs"
    **{rule: forms for rule, forms in RULES.items() if "n > 1" not in rule and "no rule" not in rule},
    "nplurals=2; plural=n > 1;": [],
    "nplurals=3; plural=no rule;": [],
    "nplurals=2; plural=no rule;": [0],
    "nplurals=2; plural=(n%10!=1 || n%100==11);": [],
    "nplurals=4; plural=(n%100==1 ? 1 : n%100==2 ? 2 : n%100==3 || n%100==4 ? 3 : 0);": [],
}


def filled(path: Path, text: bytes) -> bytes:
    """What is written of a catalogue when each line is translated into capital letters."""
    path.write_bytes(text)
    document = read_document(path, "en", "de", False)
    document.fill([line.upper() for line in document.lines])
    document.write(path)
    return path.read_bytes()


LATIN = ("UTF-8", "ISO-8859-1"), ("a dog", "a d\xf6g"), ("A DOG", "A D\xd6G")
WIDER = ("UTF-8", "ISO-8859-1"), ("a dog", "a d\xffg"), ("A DOG", "A D\u0178G")  # whose capital letter Latin-1 lacks


def replaced(text: str, changes) -> str:
    for change in changes:
        text = text.replace(*change)
    return text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PO.encode(), FILLED.encode()),
        (b"\xef\xbb\xbf" + PO.encode(), b"\xef\xbb\xbf" + FILLED.encode()),
        (PO.replace("\n", "\r\n").encode(), FILLED.replace("\n", "\r\n").encode()),
        (replaced(PO, LATIN).encode("latin-1"), replaced(FILLED, LATIN).encode("latin-1")),
        (replaced(PO, WIDER).encode("latin-1"), replaced(FILLED, WIDER[1:]).encode()),
    ],
)
def test_what_is_not_translated_is_filled_and_all_else_kept(tmp_path, text, expected):
    assert filled(tmp_path / "a.PO", text) == expected
    assert read_document(tmp_path / "a.PO", "en", "de", False).lines == []


@pytest.mark.parametrize(
    ("plural", "rule", "singular"),
    [("dogs", *row) for row in RULES.items()] + [("%d dogs", *row) for row in RULES_OF_MANY.items()],
)
def test_plural_forms_are_filled_by_the_rule_of_the_header(tmp_path, plural, rule, singular):
    strings = "".join(f'msgstr[{form}] ""\n' for form in range(int(rule[9])))
    text = PO[: PO.index("#: file.c:3")].replace("nplurals=2; plural=(n != 1);", rule)
    filled(tmp_path / "a.po", f'{text}msgid "a dog"\nmsgid_plural "{plural}"\n{strings}'.encode())
    (entry,) = polib.pofile(str(tmp_path / "a.po"))
    assert [form for form, string in entry.msgstr_plural.items() if string == "A DOG"] == singular
    assert set(entry.msgstr_plural.values()) <= {"A DOG", plural.upper()}


@pytest.mark.parametrize("mark", [*"\r\v\f\x1c\x1d\x1e\x85\u2028\u2029", "\\a"])
def test_only_a_line_feed_ends_a_line_of_a_catalogue(tmp_path, mark):
    """str.splitlines, which polib calls, ends one at each of these."""
    text = PO.replace("a comment", f"a {mark} comment").replace("tei", f"t{mark}ei").replace("all %s", f"all {mark} %s")
    filled(tmp_path / "a.po", text.encode())
    written = (tmp_path / "a.po").read_bytes().decode()
    shown = polib.escape(mark) if mark in "\r\v\f" else mark
    assert [f"a {mark} comment" in written, f't{mark}ei"\n' in written, f"ALL {shown} %S" in written] == [True] * 3
    assert len(written.split("\n")) == len(FILLED.split("\n"))


@pytest.mark.parametrize(
    ("text", "lines", "translation"),
    [
        ("The file that you\\nhave chosen\\nis gone.", ["The file that you have chosen is gone."], None),
        ("First.\\nsecond", ["First.", "second"], "FIRST.\nSECOND"),
        ("A title\\nThe text", ["A title", "The text"], "A TITLE\nTHE TEXT"),
        ("- yes\\n- no\\n", ["yes", "no"], "- YES\n- NO\n"),
        ("<b>yes</b>", ["yes"], "<b>YES</b>"),
        ("<b>yes</b> or <b>no</b>", ["<b>yes</b> or <b>no</b>"], "<B>YES</B> OR <B>NO</B>"),
        ("\\n\\n  a  \\n", ["a"], "\n\n  A  \n"),
        ("<b></b> x\\n<p> </p>", ["<b></b> x"], "<B></B> X\n<p> </p>"),
        ("Open\\tCtrl+O\\vx", ["Open", "Ctrl+O", "x"], "OPEN\tCTRL+O\vX"),
        ("-a   all\\n     files\\nb   c", ["-a", "all files", "b", "c"], "-A   ALL\n     FILES\nB   C"),
        ("ab  c\\na:  d", ["ab", "c", "a:", "d"], "AB  C\nA:  D"),
        ("ab  c.  D\\nAbc d.  E", ["ab  c.  D", "Abc d.  E"], "AB  C.  D\nABC D.  E"),
    ],
)
def test_a_sentence_over_several_lines_is_one_and_what_is_around_stays(tmp_path, text, lines, translation):
    (tmp_path / "a.po").write_text(f'msgid "{text}"\nmsgstr ""\n')
    assert read_document(tmp_path / "a.po", "en", "de", False).lines == lines
    filled(tmp_path / "a.po", (tmp_path / "a.po").read_bytes())
    (entry,) = polib.pofile(str(tmp_path / "a.po"))
    assert entry.msgstr == translation or (translation is None and entry.msgstr.count("\n") == 2)


def test_the_place_of_a_line_is_that_of_its_entry(tmp_path):
    (tmp_path / "a.po").write_text(PO)
    assert [PO.split("\n")[place - 1] for place in read_document(tmp_path / "a.po", "en", "de", False).places] == [
        'msgid "Usage:\\n  -a  all %s\\n"',
        'msgid "Usage:\\n  -a  all %s\\n"',
        'msgid "a dog"',
        'msgid "a dog"',
    ]


def test_the_mark_of_an_entry_stands_before_what_it_was_before(tmp_path):
    text = PO[: PO.index("#: file.c:3")] + '#. told\n#| msgid "old"\nmsgid "new"\nmsgstr ""\n'
    assert (
        filled(tmp_path / "a.po", text.encode())
        .decode()
        .endswith('#. told\n#, fuzzy\n#| msgid "old"\nmsgid "new"\nmsgstr "NEW"\n')
    )


def test_marks_of_gettext_need_no_space_and_come_once(tmp_path):
    text = b'#,fuzzy,c-format\nmsgid "a"\nmsgstr ""\n\n#~msgid "b"\n#~msgstr ""\n'
    assert filled(tmp_path / "a.po", text) == text.replace(b'""', b'"A"', 1)


@pytest.mark.parametrize("strings", ["[1] [2]", "[0] [5]"])
def test_forms_that_the_rule_lacks_are_filled(tmp_path, strings):
    fields = "".join(f'msgstr{form} ""\n' for form in strings.split())
    filled(tmp_path / "a.po", f'{PO[: PO.index("#: file.c:3")]}msgid "dog"\nmsgid_plural "dogs"\n{fields}'.encode())
    assert "" not in polib.pofile(str(tmp_path / "a.po"))[0].msgstr_plural.values()


@pytest.mark.parametrize("rule", [rule for rule in RULES if "no rule" not in rule])
def test_msgfmt_accepts_what_is_written(tmp_path, rule):
    if not shutil.which("msgfmt"):
        pytest.skip("msgfmt is not installed (Debian: apt-get install gettext)")
    text = PO.replace("nplurals=2; plural=(n != 1);", rule)
    strings = "".join(f'msgstr[{form}] ""\n' for form in range(int(rule[9])))
    filled(tmp_path / "a.po", text.replace('msgstr[0] ""\nmsgstr[1] ""\n', strings).encode())
    done = subprocess.run(["msgfmt", "-o", "/dev/null", tmp_path / "a.po"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PO.replace("Language: de", "Language: fr"), "is for fr, and this model translates en to de"),
        (PO.replace("msgid", "msgxd"), r"a\.po is damaged \(.*`msgfmt -c` says more"),
        (PO[: PO.index("tei")], r"a\.po is damaged \(line 13: a string without end"),
        (PO[: PO.index("veraltet")], r"a\.po is damaged \(line 33: a string without end"),
        ("", r"a\.po has no entries\. Nothing was translated\. What made it found no text"),
        (PO[: PO.index("#: file.c:3")], r"a\.po has no entries"),
        (b"\xff\xfe\x00", r"a\.po is damaged"),
        ("/etc/hostname", r"a\.po is damaged"),
        (PO + '\nmsgid "Dog"\n', r"a\.po is damaged \(line \d+: no msgstr\)"),
        (PO + '\nmsgid "b"\nmsgid_plural "c"\nmsgstr[00] ""\nmsgid "d"\nmsgstr ""\n', r"no msgstr\[0\]"),
        (PO.replace("UTF-8", "punycode"), r"a\.po is damaged \(charset=punycode"),
    ],
)
def test_a_damaged_or_foreign_catalogue_is_refused(tmp_path, text, message):
    (tmp_path / "a.po").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=message):
        read_document(tmp_path / "a.po", "en", "de", False)


@pytest.mark.parametrize("code", ["de_AT", "deu", "de@hebrew", "de-DE"])
def test_a_language_may_be_written_in_any_way(tmp_path, code):
    (tmp_path / "a.po").write_text(PO.replace("Language: de", f"Language: {code}"))
    assert read_document(tmp_path / "a.po", "en", "de", False).lines


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("a.md", "`md2po --no-code-blocks --no-frontmatter a.md a.po`"),
        ("a.yml", "`yaml2po a.yml a.po`"),
        ("a.ass", "`po2sub --fuzzy -t a.ass a.po OUTPUT`"),
        ("a.rst", "If it is plain, type `python -m transformer MODEL < a.rst`"),
        ("b.JSON", "`json2po b.JSON a.po`"),
        ("a.srt", "`sub2po a.srt a.po`"),
        ("a.xliff", "lose elements"),
        ("a.tmx", "texts of both sides"),
        ("strings.xml", "Give its sentences, one a line"),
        ("a.pot", "`msginit -i a.pot"),
        ("a.mo", "`msgunfmt a.mo"),
        ("a.po.gz", "gunzip -k a.po.gz"),
        ("srt.txt", "`sub2po srt.txt a.po`"),
        ("page", "name it page.html"),
    ],
)
def test_another_format_is_refused_with_the_way_to_go(tmp_path, monkeypatch, name, remedy):
    monkeypatch.chdir(tmp_path)
    Path("srt.txt").write_text(f"\n{SRT}")
    Path("page").write_text("\ufeff<!doctype html>\n<p>A")
    with pytest.raises(ValueError, match="Nothing was translated") as error:
        is_document(Path(name))
    assert remedy in str(error.value)


SRT = "1\n00:00:01,000 --> 00:00:02,000\nEin Hund.\n\n2\n00:00:03,000 --> 00:00:04,000\n- Ja\n- Nein\n\n"
DOCUMENTS = {
    "a.md": "---\ntitle: x\n---\n\n# Der Hund\n\n[Seite](http://a.de)\n\n```\nx = 1\n```\n\n- eins\n- zwei\n",
    "a.json": '{\n    "title": "Der Hund",\n    "n": {\n        "text": "Ein Hund."\n    }\n}\n',
    "a.properties": "# c\ntitle=Der Hund\n",
    "a.srt": SRT,
}


@pytest.mark.full
@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_converters_bring_a_document_there_and_back(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    tool, text = CONVERTERS[Path(name).suffix], DOCUMENTS[name]
    if not shutil.which(f"{tool}2po"):
        pytest.skip("translate-toolkit is not installed")
    Path(name).write_text(text)
    options = OPTIONS.get(tool, "").split()
    subprocess.run([f"{tool}2po", "--progress=none", *options, name, "a.po"], check=True)
    document = read_document(Path("a.po"), "de", "en", False)
    assert {"title: x", "x = 1"}.isdisjoint(document.lines)
    document.fill(document.lines)
    document.write(Path("a.po"))
    assert polib.pofile("a.po").untranslated_entries() == []
    subprocess.run([f"po2{tool}", "--progress=none", "--fuzzy", "-t", name, "a.po", "b"], check=True)
    assert Path("b").read_text() == text


def test_plain_text_is_no_document():
    assert not any(map(is_document, (None, Path("a.txt"), Path("a"), Path("a.de.gz"))))


def test_messages_of_icu_and_names_of_people_stay_empty(tmp_path):
    messages = ("{n, plural, one {# dog} other {# dogs}}", "translator-credits", "{n} dogs")
    (tmp_path / "a.po").write_text("\n".join(f'msgid "{text}"\nmsgstr ""\n' for text in messages))
    assert read_document(tmp_path / "a.po", "en", "de", False).lines == ["{n} dogs"]
