"""Files of entries: what is not translated is filled and marked, all else stays as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from transformer.inference.documents import fill, lines_of, read_document

PO = """\
# a comment
msgid ""
msgstr ""
"Language: de\\n"
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"

#: file.c:3
msgctxt "menu"
msgid "File"
msgstr "Datei"

#: file.c:4
#, c-format
msgid "Usage:\\n  -a  all %s\\n"
msgstr ""

#, fuzzy
msgid "fuzzy"
msgstr "unscharf"

msgid "a dog"
msgid_plural "dogs"
msgstr[0] ""
msgstr[1] ""

#~ msgid "obsolete"
#~ msgstr "veraltet"
"""
FILLED = (
    PO.replace("#, c-format", "#, c-format, fuzzy")
    .replace('all %s\\n"\nmsgstr ""', 'all %s\\n"\nmsgstr ""\n"USAGE:\\n"\n"  -A  ALL %S\\n"')
    .replace('msgid "Usage:\\n  -a', 'msgid ""\n"Usage:\\n"\n"  -a')
    .replace('msgid "a dog"', '#, fuzzy\nmsgid "a dog"')
    .replace('[0] ""', '[0] "A DOG"')
    .replace('[1] ""', '[1] "DOGS"')
)
NAMESPACE = 'xmlns="urn:oasis:names:tc:xliff:document:{}"'
XLIFF = f"""\
<xliff {NAMESPACE.format(1.2)} version="1.2"><!-- kept --><file source-language="en-US" target-language="de"><body>
<trans-unit id="1"><source>yes</source><target>ja</target></trans-unit>
<trans-unit id="2"><source> no\n&amp; yes </source>
</trans-unit>
<trans-unit id="3"><source>new</source><target state="needs-translation">new</target></trans-unit>
<trans-unit id="6"><source>now</source><target state="initial">now</target></trans-unit>
<trans-unit id="4"><source>a <g id="1">dog</g></source></trans-unit>
<trans-unit id="5" translate="no"><source>%s</source></trans-unit>
<group translate="no"><trans-unit id="7"><source>name <x id="1" /></source></trans-unit></group>
<trans-unit id="8"><source>two</source><seg-source><mrk mtype="seg">two</mrk></seg-source></trans-unit>
<trans-unit id="9"><source>three</source><target><x id="1" /></target></trans-unit>
</body></file></xliff>"""
XLIFF_FILLED = (
    XLIFF.replace(
        "yes </source>\n", 'yes </source>\n<target state="needs-review-translation"> NO\n&amp; YES </target>\n'
    )
    .replace('"needs-translation">new', '"needs-review-translation">NEW')
    .replace('"initial">now', '"needs-review-translation">NOW')
    .replace("</seg-source>", '</seg-source><target state="needs-review-translation">TWO</target>')
)
XLIFF2 = f"""\
<xliff {NAMESPACE.format(2.0)} version="2.0" srcLang="en" trgLang="de"><file id="f"><unit id="1">
<segment><source>no</source></segment><segment><source>yes</source><target>ja</target></segment></unit>
<unit id="2" translate="no"><segment><source>name</source></segment></unit></file></xliff>"""
XLIFF2_FILLED = XLIFF2.replace(
    "<segment><source>no</source>", '<segment state="translated"><source>no</source><target>NO</target>'
)
TMX = """\
<tmx version="1.4"><body><tu><tuv xml:lang="en"><seg>yes</seg></tuv><tuv xml:lang="de"><seg>ja</seg></tuv></tu>
<tu><tuv xml:lang="EN-us"><seg>no</seg></tuv></tu><tu><tuv xml:lang="fr"><seg>non</seg></tuv></tu></body></tmx>"""
TMX_FILLED = TMX.replace("<seg>no</seg></tuv>", '<seg>no</seg></tuv><tuv xml:lang="de"><seg>NO</seg></tuv>\n')
SRT = "1\n00:00:01,000 --> 00:00:02,000\n{}\n\n2\n00:00:03,000 --> 00:00:04,000\n\n3\n00:00:05,000 --> 00:00:06,000\n{}"
BARE = "1\n00:01,000 --> 00:02,000\n{}\n2\n1:02.5 --> 1:03.5\n \n{}\n"  # no hours; no empty line, or one too many
TWO_LINES = "a sentence that has more than forty\ncharacters, in two lines of one subtitle"


def dos(text: str) -> str:
    """A text whose lines end in a carriage return and a line feed, some of them longer than a tool would wrap."""
    return text.replace('"fuzzy"', f'"{"long " * 30}"').replace("\n", "\r\n")


@pytest.mark.parametrize(
    ("name", "text", "expected", "skipped"),
    [
        ("A.PO", PO, FILLED, 0),
        (
            "a.po",
            PO.replace("UTF-8", "ISO-8859-1").replace("a dog", "\xff"),
            FILLED.replace("a dog", "\xff").replace("A DOG", "\xff".upper()),  # which ISO-8859-1 lacks
            0,
        ),
        ("a.po", dos(PO), dos(FILLED), 0),
        ("a.xliff", XLIFF, XLIFF_FILLED, 1),
        ("a.xlf", XLIFF2, XLIFF2_FILLED, 0),
        ("a.tmx", TMX, TMX_FILLED, 0),
        (
            "a.srt",
            SRT.format("- yes\n- no", TWO_LINES),
            SRT.format(
                "- YES\n- NO", "A SENTENCE THAT HAS MORE THAN FORTY\nCHARACTERS, IN TWO LINES OF ONE SUBTITLE\n"
            ),
            0,
        ),
        ("a.srt", "\ufeff" + dos(SRT.format("yes", "no")), "\ufeff" + dos(SRT.format("YES", "NO\n")), 0),
        ("a.srt", BARE.format("yes", "no"), BARE.format("YES", "NO"), 0),
    ],
)
def test_what_is_not_translated_is_filled_and_marked(tmp_path, name, text, expected, skipped):
    path = tmp_path / name
    path.write_bytes(text.encode("latin-1" if "8859" in text else "utf-8"))
    document = read_document(path, "en", "de")
    fill(document.entries, [line.upper() for line in lines_of(document.entries)])
    document.write(path)
    written = re.sub(r"^<\?xml.*\?>\n", "", path.read_bytes().decode())
    assert (written, document.skipped) == (expected, skipped)
    if name != "a.srt":
        assert lines_of(read_document(path, "en", "de").entries) == []


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.po", PO.replace("Language: de", "Language: fr"), "is for fr, and this model translates en to de"),
        ("a.po", PO.replace("msgid", "msgxd"), r"a\.po is damaged \(.*Correct it"),
        ("a.xliff", XLIFF.replace('"en-US"', '"de"'), "is for de, and this model"),
        ("a.tmx", TMX[:-9], r"a\.tmx is damaged \(unclosed token"),
        ("a.srt", "1\nyes\n", r"a\.srt has no times such as 00:00:01,000 -->"),
        ("a.srt", b"\xff\xfe", r"a\.srt is damaged \('utf-8'"),
    ],
)
def test_a_damaged_or_foreign_document_is_refused(tmp_path: Path, name, text, message):
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=message):
        read_document(tmp_path / name, "en", "de")
