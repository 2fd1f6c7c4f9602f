"""Archives are read without unpacking, and refused if they hold what no corpus needs; TED and WMT markup is parsed."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from transformer.corpora.archives import check_archive, open_member
from transformer.corpora.markup import segments, text_lines

TEXT = b"eins\nzwei\n"


def tar(path: Path, *members: tarfile.TarInfo | tuple[str, bytes]) -> Path:
    """A .tgz with some members: special ones, or a name and content each."""
    with tarfile.open(path, "w:gz") as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
    return path


def zipped(path: Path, *members: tuple[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return path


def special(kind: bytes, name: str = "x", target: str = "/etc/passwd") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize("make", [tar, zipped])
def test_a_member_is_read_as_it_is(tmp_path, make):
    path = make(tmp_path / ("a.tgz" if make is tar else "a.zip"), ("./de-en/a.de", TEXT), ("de-en/a.en", b"one\ntwo\n"))
    check_archive(path, ["de-en/a.de", "de-en/a.en"])
    with open_member(path, "de-en/a.en") as file:
        assert list(file) == [b"one\n", b"two\n"]
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


REFUSED = {
    "link": (special(tarfile.SYMTYPE), "x is a link or device"),
    "device": (special(tarfile.CHRTYPE), "x is a link or device"),
    "sparse file": (special(tarfile.GNUTYPE_SPARSE), "x is a sparse file"),
    "above": (("../../x", TEXT), "../../x leads out of its folder"),
    "absolute": (("/x", TEXT), "/x leads out of its folder"),
    "backslashes": (("..\\x", TEXT), "..\\x leads out of its folder"),
    "bomb": (("x", bytes(50_000_000)), "it unpacks to more than"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_archive_with_a_dangerous_member_is_refused(tmp_path, name):
    member, expected = REFUSED[name]
    path = tar(tmp_path / "a.tgz", ("a.de", TEXT), member)
    with pytest.raises(ValueError, match=r"a\.tgz was refused: ") as error:
        check_archive(path, ["a.de"])
    assert expected in str(error.value)


def test_a_zip_file_with_a_link_or_a_bomb_is_refused(tmp_path):
    info = zipfile.ZipInfo("x")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(ValueError, match="x is a link"):
        check_archive(tmp_path / "a.zip", [])
    with pytest.raises(ValueError, match="it unpacks to more than"):
        check_archive(zipped(tmp_path / "b.zip", ("x", bytes(50_000_000))), [])


@pytest.mark.parametrize("make", [tar, zipped])
def test_a_missing_member_and_a_damaged_archive_are_named(tmp_path, make):
    path = make(tmp_path / ("a.tgz" if make is tar else "a.zip"), ("a.de", TEXT * 1000))
    with pytest.raises(ValueError, match=r"has no a\.en"):
        check_archive(path, ["a.de", "a.en"])
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match="is damaged or no archive"):
        check_archive(path, ["a.de"])


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
