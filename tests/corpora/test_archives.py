"""Archives are read without unpacking, and refused if they hold what no corpus needs; TED and WMT markup is parsed."""

from __future__ import annotations

import gzip
import io
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from transformer.corpora.archives import check_archive, open_member
from transformer.corpora.markup import segments, untagged

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


def header(kind: bytes = tarfile.REGTYPE, size: int = 0) -> bytes:
    """A header of a tar."""
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


def continued(kind: bytes, text: bytes) -> bytes:
    """A header of a tar that continues another, with its text."""
    return header(kind, len(text)) + text + bytes(-len(text) % 512)


SPARSE = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"
BOMBS = {
    "members": [header() * 1000] * 50,
    "name": [header(tarfile.GNUTYPE_LONGNAME, 1 << 30), *[bytes(1 << 20)] * 32],
    "sparse map": [
        continued(tarfile.XHDTYPE, SPARSE),
        header(size=1 << 30),
        b"99999999\n",
        *[b"1".zfill(31) + b"\n"] * 800_000,
    ],
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_tar_of_headers_is_refused_with_little_memory(tmp_path, name):
    with gzip.open(tmp_path / "a.tgz", "wb", 1) as file:
        file.writelines(BOMBS[name])
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"^a\.tgz was refused: it has too many members or too long headers"):
        check_archive(tmp_path / "a.tgz", ["x"])
    assert tracemalloc.get_traced_memory()[1] < 20_000_000
    tracemalloc.stop()


def test_a_zip_file_with_too_many_members_is_refused(tmp_path):
    path = zipped(tmp_path / "a.zip", *((f"{n}", b"") for n in range(22_000)))
    with pytest.raises(ValueError, match=r"^a\.zip was refused: it has too many members"):
        check_archive(path, ["1"])


@pytest.mark.parametrize("kind", [tarfile.DIRTYPE, tarfile.REGTYPE])
def test_a_size_below_0_hides_no_bomb(tmp_path, kind):
    path = tmp_path / "a.tgz"
    path.write_bytes(gzip.compress(header(kind, -(1 << 40)) + header(size=1 << 30) + bytes(1 << 20)))
    with pytest.raises(ValueError, match=r"^a\.tgz was refused: x has -1,099,511,627,776 bytes"):
        check_archive(path, ["x"])


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
        (b"<seg>\xff</seg>", r"2:6: invalid UTF-8"),
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
    assert list(untagged(io.BytesIO(b"".join(lines)), "a.de")) == [lines[2], lines[3], *lines[5:]]
