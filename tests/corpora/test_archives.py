"""Archives are read without unpacking; TED and WMT markup is parsed."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from transformer.corpora.archives import open_member
from transformer.corpora.markup import segments, text_lines

TEXT = b"eins\nzwei\n"


def tar(path: Path, *members: tuple[str, bytes]) -> Path:
    """A .tgz with some members: a name and content each."""
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def zipped(path: Path, *members: tuple[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return path


@pytest.mark.parametrize("make", [tar, zipped])
def test_a_member_is_read_as_it_is_and_nothing_is_written(tmp_path, make):
    tmp_path = tmp_path / "folder"
    tmp_path.mkdir()
    path = make(tmp_path / ("a.tgz" if make is tar else "a.zip"), ("./de-en/a.de", TEXT), ("../a.en", b"one\ntwo\n"))
    with open_member(path, "../a.en") as file:
        assert list(file) == [b"one\n", b"two\n"]
    assert [file.name for file in tmp_path.parent.rglob("*")] == [tmp_path.name, path.name]


@pytest.mark.parametrize("make", [tar, zipped])
def test_a_missing_member_and_a_damaged_archive_are_named(tmp_path, make):
    path = make(tmp_path / ("a.tgz" if make is tar else "a.zip"), ("a.de", TEXT * 1000))
    with pytest.raises(ValueError, match=r"a\.\w+ has no a\.en"), open_member(path, "a.en"):
        pass
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match=r"a\.\w+: a\.de cannot be read"), open_member(path, "a.de") as file:
        file.read()


def segments_of(data: bytes) -> list[bytes]:
    """The segments of a marked up file."""
    return list(segments(io.BytesIO(data), "a.xml"))


def test_segments_are_read_from_xml_and_from_sgml():
    xml = b"""<?xml version="1.0" encoding="UTF-8"?><mteval><srcset srclang="german"><doc docid="1">
<url>http://a.de</url><seg id="1"> Das ist &quot;gut&quot; &amp; sch\xc3\xb6n. </seg>
<seg id="2"> a
b </seg><seg id="3"></seg></doc></srcset></mteval>"""
    assert segments_of(xml) == ['Das ist "gut" & schön.\n'.encode(), b"a b\n", b"\n"]
    sgml = (
        b'<refset setid="x"><DOC sysid="ref"><hl><SEG ID=1>A & B < C</SEG></hl><p><seg id="2">I <3 you</seg></p></DOC>'
    )
    assert segments_of(sgml) == [b"A & B < C\n", b"I <3 you\n"]


def test_programs_styles_and_sections_in_a_segment_are_text():
    xml = b"<seg>a <script> b</seg>\n<seg>c <style>d</seg>\n<seg>e <title>f</seg>\n<seg><![CDATA[g & <h>]]></seg>"
    assert segments_of(xml) == [b"a b\n", b"c d\n", b"e f\n", b"g & <h>\n"]


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (b"<seg>\xff</seg>", r"2:6: not UTF-8"),
        (b"<seg>b\0</seg>", r"2:7: a NUL character"),
        (b"<seg>b", r"2: wrong markup: the file ends, but the <seg> of line 2 has no </seg>"),
        (b"<seg>b</se", r"2: wrong markup: a tag or comment without end"),
        (b"<seg>b</seg>\n<!-- ", r"3: wrong markup: a tag or comment without end"),
        (b"<seg>b<![CDATA[</seg>", r"2: wrong markup: a tag or comment without end"),
        (b"<seg>b\n<seg>c</seg>", r"3: wrong markup: a <seg>, but that of line 2 has no </seg>"),
        (b"</seg>", r"2: wrong markup: a </seg> without <seg>"),
        (b"<seg>I <![x] you</seg>", r"2: wrong markup: "),
        (b"<seg>&#" + b"1" * 5000 + b";</seg>", r"2: wrong markup: "),
    ],
)
@pytest.mark.parametrize("before", [b"", b" " * 70_000], ids=["in one block", "in two blocks"])
def test_damaged_markup_is_refused_with_the_line(before, end, expected):
    with pytest.raises(ValueError, match=rf"^a\.xml:{expected}") as error:
        segments_of(before + b"<seg>a</seg>\n" + end)
    assert "\n" not in str(error.value)


def test_lines_of_tags_are_left_out_of_ted_text():
    lines = [
        b"<url>http://x</url>\n",
        b" <title>T</title>\n",
        b"Text <b>und</b> mehr\n",
        b"<3\n",
        b"</doc>\n",
        b"\n",
        b"<i>Kursiv</i> beginnt\n",
    ]
    lines += [b"<![x ]\n", b"<b>&#" + b"1" * 5000 + b";\n"]
    assert list(text_lines(io.BytesIO(b"".join(lines)), "a.de")) == [lines[2], lines[3], *lines[5:]]
