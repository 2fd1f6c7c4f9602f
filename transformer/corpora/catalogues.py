"""Parallel text as programs and translators keep it: catalogues of messages (PO, MO), translation memories (TMX).

What nobody has translated or checked is left out: entries that are empty, fuzzy or obsolete. The plural form for n = 1
is paired with the singular, a form for many numbers with the plural. A form for one other number (0 or 2 in Arabic) is
skipped: it may spell that number out. An entry of several lines gives a pair a line if both sides have equally many,
and blank ones at the same places, else one pair. A catalogue may also be used backwards: one from English to German
holds pairs from German to English.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import cast
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from transformer.corpora.text_files import LONGEST_LINE, open_file, plain_name
from transformer.files import Mistake, check_length, is_bug
from transformer.text.catalogue import numbers_of_forms, read_catalogue, source_of_form
from transformer.text.languages import strip_region

ENDS = (".po", ".mo", ".tmx")
Pair = tuple[str, str]
Codes = tuple[str | None, str | None]  # of source and target, as a file names them
_CODE_OF_A_TOOL = ("bpt", "ept", "ph", "it", "ut", "sub")  # elements inside a text that are no text
_XML = "{http://www.w3.org/XML/1998/namespace}"


@dataclass
class Catalogue:
    """A file of one of the formats ENDS. languages: codes of source and target."""

    path: Path
    languages: tuple[str, str]

    @property
    def names(self) -> tuple[str, str]:
        return str(self.path), str(self.path)

    def pairs(self) -> Iterator[Pair]:
        """The pairs of lines; without any in these languages a remark is printed. Raises Mistake for a damaged file."""
        gettext, count = plain_name(self.path).endswith((".po", ".mo")), 0
        entries = gettext_entries(self.path) if gettext else memory_entries(self.path, self.languages)
        for codes, source, target in entries:
            if "\0" in source + target:
                raise Mistake(f"{self.path}: a NUL character in {source[:40]!r}. Remove it.")
            pair = (target, source) if self._is_backwards(codes) else (source, target)
            count += 1
            for lines in line_pairs(*pair):
                for line in lines:
                    check_length(line.encode(), str(self.path), LONGEST_LINE)
                yield lines
        if not count:
            languages = " and ".join(self.languages)
            print(f"remark: {self.path} has no translations between {languages}", file=sys.stderr)

    def _is_backwards(self, codes: Codes) -> bool:
        """Whether an entry from one language to another is from our target to our source."""
        if fits(codes, self.languages):
            return False
        if fits(codes, (self.languages[1], self.languages[0])):
            return True
        known = " to ".join(code or "?" for code in codes)
        raise Mistake(
            f"{self.path} has translations from {known}, not between {' and '.join(self.languages)}. "
            "Set source and target, or correct the language in the file."
        )


def fits(codes: Codes, languages: tuple[str, str]) -> bool:
    """Whether the languages of a file, as far as it names them, are these, whatever their regions."""
    return all(not code or strip_region(code) == strip_region(own) for code, own in zip(codes, languages, strict=True))


def line_pairs(source: str, target: str) -> Iterator[Pair]:
    """The lines of an entry, in pairs if both sides have equally many, and blank ones at the same places; else joined.

    Blank pairs are left out.
    """
    sides = source.split("\n"), target.split("\n")
    blank = [[not line.strip() for line in side] for side in sides]
    if blank[0] != blank[1]:
        sides = [source], [target]
    for pair in zip(*sides, strict=True):
        first, second = (" ".join(line.split()) for line in pair)
        if first or second:
            yield first, second


def gettext_entries(path: Path) -> Iterator[tuple[Codes, str, str]]:
    """The translated entries of a .po or .mo file: languages, source and target."""
    import polib

    with open_file(path) as file:
        content = b"".join(file)
    try:
        compiled = plain_name(path).endswith(".mo")  # "\n": polib would open a path
        catalogue = polib.mofile(cast("str", content + b"\n")) if compiled else read_catalogue(content.decode())
    except UnicodeDecodeError:
        raise Mistake(f"{path}: not UTF-8. Convert it: msgconv --to-code=utf-8 -o NEW {quote(str(path))}") from None
    except (OSError, ValueError, LookupError, struct.error) as error:
        reason = str(error).replace("Syntax error in po file", "").strip() or "no catalogue of messages"
        raise Mistake(f"{path} is damaged ({reason}). Copy it again.") from None
    codes = None, catalogue.metadata.get("Language")
    for entry in catalogue.translated_entries():  # neither fuzzy nor obsolete
        if not entry.msgid_plural:
            yield codes, entry.msgid, entry.msgstr
            continue
        numbers = numbers_of_forms(rule := catalogue.metadata.get("Plural-Forms"), len(entry.msgstr_plural))
        for form, (_, text) in enumerate(sorted(entry.msgstr_plural.items())):
            if text and (not numbers or 1 in numbers[form] or len(numbers[form]) > 1):
                yield codes, source_of_form(entry, form, rule, text), text


def memory_entries(path: Path, languages: tuple[str, str]) -> Iterator[tuple[Codes, str, str]]:
    """The entries of a .tmx file that have both languages: the languages, source and target."""
    with open_file(path) as file:
        for element in elements(file, path):
            if local(element) == "tu":
                source, target = texts_of(element, languages)
                if source and target:
                    yield languages, source, target
                element.clear()


def elements(lines: Iterable[bytes], path: Path) -> Iterator[Element]:
    """The elements of an XML file, each at its end. path: of the file, for messages."""
    parser = XMLPullParser(("end",))
    try:
        for line in lines:
            parser.feed(line)
            for _, element in cast("Iterator[tuple[str, Element]]", parser.read_events()):
                yield element
        parser.close()
    except (ParseError, LookupError, ValueError) as error:  # the last two: of an encoding that Python does not have
        if isinstance(error, Mistake) or is_bug(error):
            raise
        remedy = "Correct this place (in XML, & is &amp; and &nbsp; is &#160;), or copy it again."
        raise Mistake(f"{path} is damaged ({error}). {remedy}") from None


def texts_of(unit: Element, languages: tuple[str, str]) -> tuple[str, str]:
    """The first text of a unit of TMX in each of two languages; in the same region if there is one, else in any."""
    texts: dict[str, str] = {}  # by code
    plain: dict[str, str] = {}  # by code without region
    for variant in (part for part in unit if local(part) == "tuv"):
        code = variant.get(f"{_XML}lang") or variant.get("lang") or ""
        for segment in (part for part in variant if local(part) == "seg"):
            kept = any(part.get(f"{_XML}space") == "preserve" for part in (unit, variant, segment))
            text = text_of(segment) if kept else " ".join(text_of(segment).split())
            texts.setdefault(code.lower(), text)
            plain.setdefault(strip_region(code), text)
    source, target = (texts.get(code.lower(), plain.get(strip_region(code), "")) for code in languages)
    return source, target


def text_of(segment: Element) -> str:
    """The text in a segment, with a space for each element inside it, without the codes of other tools."""
    for element in segment.iter():
        if local(element) in _CODE_OF_A_TOOL:
            tail = element.tail
            element.clear()
            element.tail = tail
    return " ".join(segment.itertext())


def local(element: Element) -> str:
    """The name of an element of XML without its namespace."""
    return element.tag.rpartition("}")[2]
