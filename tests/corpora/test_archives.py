"""Archives are read without unpacking, and refused if they hold what no corpus needs; TED and WMT markup is parsed."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    path = make(tmp_path / ("a.tgz" if make is tar else "a.zip"), ("de-en/a.de", TEXT), ("de-en/a.en", b"one\ntwo\n"))
    check_archive(path, ["de-en/a.de", "de-en/a.en"])
    with open_member(path, "de-en/a.en") as file:
        assert list(file) == [b"one\n", b"two\n"]
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


REFUSED = {
    "link": (special(tarfile.SYMTYPE), "x is a link or device"),
    "hard link": (special(tarfile.LNKTYPE), "x is a link or device"),
    "device": (special(tarfile.CHRTYPE), "x is a link or device"),
    "block device": (special(tarfile.BLKTYPE), "x is a link or device"),
    "pipe": (special(tarfile.FIFOTYPE), "x is a link or device"),
    "above": (("../../x", TEXT), "../../x leads out of its folder"),
    "absolute": (("/x", TEXT), "/x leads out of its folder"),
    "backslashes": (("..\\x", TEXT), "..\\x leads out of its folder"),
    "bomb": (("x", bytes(50_000_000)), "it unpacks to more than"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_archive_with_a_dangerous_member_is_refused(tmp_path, name):
    member, wanted = REFUSED[name]
    path = tar(tmp_path / "a.tgz", ("a.de", TEXT), member)
    with pytest.raises(ValueError, match=r"a\.tgz was refused: ") as error:
        check_archive(path, ["a.de"])
    assert wanted in str(error.value)


@pytest.mark.parametrize("name", ["../x", "/x", "..\\..\\x"])
def test_a_zip_file_with_a_name_that_leads_out_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="leads out of its folder"):
        check_archive(zipped(tmp_path / "a.zip", ("a.de", TEXT), (name, TEXT)), ["a.de"])


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


def test_segments_are_read_from_xml_and_from_sgml():
    xml = b"""<?xml version="1.0" encoding="UTF-8"?><mteval><srcset srclang="german"><doc docid="1">
<url>http://a.de</url><seg id="1"> Das ist &quot;gut&quot; &amp; sch\xc3\xb6n. </seg>
<seg id="2"> a
b </seg><seg id="3"></seg></doc></srcset></mteval>"""
    assert list(segments(io.BytesIO(xml))) == ['Das ist "gut" & schön.\n'.encode(), b"a b\n", b"\n"]
    sgml = (
        b'<refset setid="x"><DOC sysid="ref"><hl><SEG ID=1>A & B < C</SEG></hl><p><seg id="2">I <3 you</seg></p></DOC>'
    )
    assert list(segments(io.BytesIO(sgml))) == [b"A & B < C\n", b"I <3 you\n"]


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20), max_size=8),
       st.integers(1, 7))  # fmt: skip
def test_each_segment_comes_back_whatever_its_characters_and_the_blocks_read(lines, size):
    import html

    import transformer.corpora.markup as markup

    data = "".join(f'<seg id="{n}">{html.escape(line)}</seg>\n' for n, line in enumerate(lines)).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(markup, "_BLOCK", size)
        found = [line.decode().removesuffix("\n") for line in segments(io.BytesIO(data))]
    plain = [html.unescape(html.escape(line)) for line in lines]
    assert found == [" ".join(line.split()) for line in plain]


def test_invalid_utf8_in_a_marked_up_file_is_named_by_its_segment():
    with pytest.raises(ValueError, match="invalid UTF-8 near <seg> 1"):
        list(segments(io.BytesIO(b"<seg>a</seg>" + b" " * 70_000 + b"<seg>\xff</seg>")))


def test_lines_of_tags_are_left_out_of_ted_text():
    lines = [b"<url>http://x</url>\n", b" <title>T</title>\n", b"Text <b>und</b> mehr\n", b"<3\n", b"</doc>\n", b"\n",
             b"<i>Kursiv</i> beginnt\n"]  # fmt: skip
    assert list(untagged(io.BytesIO(b"".join(lines)))) == [lines[2], lines[3], lines[5], lines[6]]
