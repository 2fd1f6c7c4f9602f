"""Parallel text as programs and translators keep it: catalogues (PO, MO), memories (TMX, XLIFF), subtitles (SRT).

What nobody has translated or checked is left out: entries that are empty, fuzzy or obsolete, and those of XLIFF that
are new or need work. Of plural forms, the first translates the singular, each further one the plural. An entry of
several lines gives a pair a line if both sides have equally many, and blank ones at the same places, else one pair. A
catalogue may also be used backwards: one from English to German holds pairs from German to English.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from transformer.corpora.text_files import LONGEST_LINE, decoded, open_file, plain_name
from transformer.files import check_length
from transformer.text.formats import LANGUAGE, cues, local
from transformer.text.languages import strip_region

ENDS = (".po", ".mo", ".tmx", ".xliff", ".xlf")
Pair = tuple[str, str]
Codes = tuple[str | None, str | None]  # of source and target, as a file names them
_CODE_OF_A_TOOL = ("bpt", "ept", "ph", "it", "ut", "sub", "x", "bx", "ex")  # elements inside a text that are no text
_UNFINISHED = ("new", "needs", "initial")  # how states of XLIFF begin


@dataclass
class Catalogue:
    """A file of one of the formats ENDS. languages: codes of source and target."""

    path: Path
    languages: tuple[str, str]

    @property
    def names(self) -> tuple[str, str]:
        return str(self.path), str(self.path)

    def pairs(self) -> Iterator[Pair]:
        """The pairs of lines. Raises ValueError for a file that is damaged, or has none in these languages."""
        gettext, count = plain_name(self.path).endswith((".po", ".mo")), 0
        entries = gettext_entries(self.path) if gettext else xml_entries(self.path, self.languages)
        for codes, source, target in entries:
            if "\0" in source + target:
                raise ValueError(f"{self.path}: a NUL character in {source[:40]!r}. Remove it.")
            pair = (target, source) if self._is_backwards(codes) else (source, target)
            count += 1
            for lines in line_pairs(*pair):
                for line in lines:
                    check_length(line.encode(), str(self.path), LONGEST_LINE)
                yield lines
        if not count:
            raise ValueError(f"{self.path} has no translations between {' and '.join(self.languages)}. Remove it.")

    def _is_backwards(self, codes: Codes) -> bool:
        """Whether an entry from one language to another is from our target to our source."""
        if fits(codes, self.languages):
            return False
        if fits(codes, (self.languages[1], self.languages[0])):
            return True
        known = " to ".join(code or "?" for code in codes)
        raise ValueError(
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
        compiled = plain_name(path).endswith(".mo")
        catalogue = polib.mofile(cast("str", content)) if compiled else polib.pofile(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not UTF-8. Convert it: msgconv --to-code=utf-8.") from None
    except (OSError, ValueError, LookupError, struct.error) as error:
        reason = str(error).replace("Syntax error in po file", "").strip() or "no catalogue of messages"
        raise ValueError(f"{path} is damaged ({reason}). Copy it again.") from None
    codes = None, catalogue.metadata.get("Language")
    for entry in catalogue.translated_entries():  # neither fuzzy nor obsolete
        if not entry.msgid_plural:
            yield codes, entry.msgid, entry.msgstr
            continue
        forms = [entry.msgstr_plural[number] for number in sorted(entry.msgstr_plural)]
        sources = [entry.msgid, *[entry.msgid_plural] * len(forms)] if len(forms) > 1 else [entry.msgid_plural]
        for source, form in zip(sources, forms, strict=False):
            yield codes, source, form


def xml_entries(path: Path, languages: tuple[str, str]) -> Iterator[tuple[Codes, str, str]]:
    """The translated entries of a .tmx or .xliff file: languages, source and target; of .tmx those in `languages`."""
    parser, codes = XMLPullParser(("start", "end")), (None, None)
    try:
        with open_file(path) as file:
            for line in file:
                parser.feed(line)
                for event, element in cast("Iterator[tuple[str, Element]]", parser.read_events()):
                    name = local(element)
                    if event == "start":
                        codes = languages_of(element, codes)
                    elif name == "tu":
                        yield from memory_entries(element, languages)
                    elif name in ("trans-unit", "segment"):
                        yield from exchange_entries(element, codes)
                    if event == "end" and name in ("tu", "trans-unit", "unit"):
                        element.clear()
        parser.close()
    except ParseError as error:
        raise ValueError(f"{path} is damaged ({error}). Copy it again.") from None


def languages_of(element: Element, codes: Codes) -> Codes:
    """The languages that an element of XLIFF names, versions 1 and 2; `codes` if it names none."""
    source = element.get("source-language") or element.get("srcLang")
    return (source, element.get("target-language") or element.get("trgLang")) if source else codes


def memory_entries(unit: Element, languages: tuple[str, str]) -> Iterator[tuple[Codes, str, str]]:
    """The first text of a unit of TMX in each of two languages, if it has both; without a region if none has it."""
    texts: dict[str, str] = {}
    for variant in (part for part in unit if local(part) == "tuv"):
        code = variant.get(LANGUAGE) or variant.get("lang") or ""
        for segment in (part for part in variant if local(part) == "seg"):
            texts.setdefault(code.lower(), text_of(segment))
            texts.setdefault(strip_region(code), text_of(segment))
    source, target = (texts.get(code.lower(), texts.get(strip_region(code), "")) for code in languages)
    if source and target:
        yield languages, source, target


def exchange_entries(unit: Element, codes: Codes) -> Iterator[tuple[Codes, str, str]]:
    """The source and the target of a unit of XLIFF, if somebody has translated it."""
    parts = {local(part): part for part in unit}
    source, target = parts.get("source"), parts.get("target")
    if source is None or target is None:
        return
    state = target.get("state") or unit.get("state") or ""
    if not state.startswith(_UNFINISHED) and (text := text_of(target)):
        yield codes, text_of(source), text


def text_of(element: Element) -> str:
    """The text in an element, without the codes of other tools in it."""
    inner = [
        ("" if local(part) in _CODE_OF_A_TOOL else text_of(part)) + (part.tail or "")
        for part in element
        if isinstance(part.tag, str)
    ]
    return (element.text or "") + "".join(inner)


@contextmanager
def open_cues(path: Path) -> Iterator[Iterator[bytes]]:
    """The cues of a .srt file, each as a line."""
    with open_file(path) as file:
        text = "".join(decoded(line, str(path), number) for number, line in enumerate(file, start=1))
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    yield (f"{' '.join(cue['text'].split())}\n".encode() for cue in cues(text))
