"""Files whose entries are translated: catalogues (PO), XLIFF, translation memories (TMX) and subtitles (SRT).

What is translated already stays. What a model adds is marked where the format can say so: fuzzy in PO; the state
needs-review-translation in XLIFF 1, translated in XLIFF 2. An entry of several lines is translated line by line and
keeps the white space around each; a subtitle is one text, but for the lines of a dialogue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple, cast
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from transformer.files import read_lines, whole_file
from transformer.inference.lines import Translate, finished_parts, remove_parts
from transformer.text.formats import LANGUAGE, cues, local
from transformer.text.languages import strip_region

if TYPE_CHECKING:
    from tqdm import tqdm

ENDS = (".po", ".xliff", ".xlf", ".tmx", ".srt")
WIDTH = 42  # characters of a line of a subtitle
_UNTRANSLATED = ("new", "initial", "needs-translation")  # states of XLIFF, which may come with a copy of the source


class Entry(NamedTuple):
    """A text to translate. fill: takes its translation."""

    text: str
    fill: Callable[[str], None]


class Document(NamedTuple):
    """A file to translate. skipped: entries that are left out, since they have elements inside their text.

    write: writes the file, with the translations that its entries got, to a path.
    """

    entries: list[Entry]
    write: Callable[[Path], None]
    skipped: int = 0


def read_document(path: Path, source: str, target: str) -> Document:
    """A file of one of the formats ENDS. Raises ValueError if it is damaged, or between other languages."""
    read = {".po": read_catalogue, ".srt": read_subtitles, ".tmx": read_memory}.get(path.suffix, read_exchange)
    try:
        return read(path, source, target)
    except (ElementTree.ParseError, UnicodeDecodeError, LookupError) as error:
        raise ValueError(f"{path} is damaged ({error}). Nothing was translated. Copy it again.") from None


def is_document(path: Path | None) -> bool:
    """Whether a file has entries, by its name. None, which is standard input, has none.

    Raises ValueError for one that is packed or compiled.
    """
    if path and (path.suffix == ".mo" or (path.suffix in (".gz", ".zst") and Path(path.stem).suffix in ENDS)):
        raise ValueError(f"{path} is packed or compiled. Nothing was translated. Give the .po or other file itself.")
    return path is not None and path.suffix in ENDS


def translate_document(
    path: Path, output: Path, languages: tuple[str, str], key: str, translate: Translate, progress: tqdm
) -> str:
    """Translate the entries of a file that have no translation, and write it to `output`. Returns the counts, in words.

    languages: of the model. key: see lines.finished_parts, which keeps what is translated so far.
    """
    document = read_document(path, *languages)
    lines = lines_of(document.entries)
    progress.total = len(lines)
    parts = finished_parts(output, key, [lines], translate, progress.update)
    fill(document.entries, (line for part in parts for line in read_lines(part)))
    with whole_file(output) as temporary:
        document.write(temporary)
    remove_parts(output)
    skipped = f" {document.skipped:,} have elements inside their text and were left out." if document.skipped else ""
    return f"{len(document.entries):,} entries were translated.{skipped}"


def lines_of(entries: Iterable[Entry]) -> list[str]:
    """The lines to translate, without the white space around them and without blank ones."""
    return [core for entry in entries for line in entry.text.split("\n") if (core := line.strip())]


def fill(entries: Iterable[Entry], translations: Iterable[str]) -> None:
    """Give entries the translations of their lines, in the order of `lines_of`."""
    waiting = iter(translations)

    def translated(line: str) -> str:
        core = line.strip()
        return line.replace(core, next(waiting), 1) if core else line

    for entry in entries:
        entry.fill("\n".join(map(translated, entry.text.split("\n"))))


def check_languages(path: Path, codes: tuple[str | None, str | None], languages: tuple[str, str]) -> None:
    """Raise ValueError if a file names other languages than those of the model, whatever their regions."""
    for code, own in zip(codes, languages, strict=True):
        if code and strip_region(code) != strip_region(own):
            raise ValueError(
                f"{path} is for {code}, and this model translates {' to '.join(languages)}. Nothing was translated. "
                "Use another model, or correct the language in the file."
            )


def read_catalogue(path: Path, source: str, target: str) -> Document:
    """A .po file. Plural forms are entries of their own: the first one translates the singular."""
    import polib

    try:
        file = polib.pofile(str(path))
    except OSError as error:
        raise ValueError(f"{path} is damaged ({error}). Nothing was translated. Correct it.") from None
    check_languages(path, (None, file.metadata.get("Language")), (source, target))

    def set_form(message: polib.POEntry, form: int | None, text: str) -> None:
        message.flags += [] if "fuzzy" in message.flags else ["fuzzy"]
        if form is None:
            message.msgstr = text
        else:
            message.msgstr_plural[form] = text

    entries = []
    for message in file.untranslated_entries():  # neither fuzzy nor obsolete
        forms = [*sorted(message.msgstr_plural)] if message.msgid_plural else [None]
        for form in forms:
            if form is None or not message.msgstr_plural[form]:
                singular = form is None or (form == 0 and len(forms) > 1)
                text = message.msgid if singular else message.msgid_plural
                entries.append(Entry(text, partial(set_form, message, form)))
    return Document(entries, lambda path: file.save(str(path)))


def read_subtitles(path: Path, source: str, target: str) -> Document:
    """A .srt file. All cues are translated; the lines of a translation have WIDTH characters at most."""
    text, parts, end = path.read_text(encoding="utf-8-sig"), [], 0

    def set_part(place: int, translation: str) -> None:
        parts[place] = "\n".join(line for part in translation.split("\n") for line in wrap(part, WIDTH)) + "\n"

    entries = []
    for cue in cues(text):
        lines = cue["text"].split("\n")[:-1] if cue["text"].endswith("\n") else cue["text"].split("\n")
        dialogue = any(line.lstrip().startswith(("-", "–")) for line in lines)
        parts += [text[end : cue.start("text")], cue["text"]]
        end = cue.end("text")
        if cue["text"].strip():
            joined = "\n".join(lines) if dialogue else " ".join(cue["text"].split())
            entries.append(Entry(joined, partial(set_part, len(parts) - 1)))
    return Document(entries, lambda path: path.write_text("".join([*parts, text[end:]]), encoding="utf-8"))  # type: ignore


def read_exchange(path: Path, source: str, target: str) -> Document:
    """A .xliff file, version 1 or 2."""
    tree, entries, skipped = read_xml(path), [], 0

    def set_target(unit: Element, before: Element, old: Element | None, text: str) -> None:
        new = Element(f"{before.tag.removesuffix('source')}target")
        new.text, new.tail = text, before.tail
        if old is not None:
            unit.remove(old)
        unit.insert([*unit].index(before) + 1, new)
        if local(unit) == "segment":
            unit.set("state", "translated")
        else:
            new.set("state", "needs-review-translation")

    for element in [*elements(tree)]:
        codes = [element.get(name) for name in ("source-language", "srcLang", "target-language", "trgLang")]
        check_languages(path, (codes[0] or codes[1], codes[2] or codes[3]), (source, target))
        parts = {local(part): part for part in element if isinstance(part.tag, str)}
        if local(element) not in ("trans-unit", "segment") or "source" not in parts:
            continue
        old = parts.get("target")
        state = old is not None and (old.get("state") or element.get("state"))
        if old is None or not "".join(old.itertext()).strip() or state in _UNTRANSLATED:
            skipped += bool(len(parts["source"]))
            if not len(parts["source"]) and element.get("translate") != "no":
                entry = Entry(parts["source"].text or "", partial(set_target, element, parts["source"], old))
                entries.append(entry)
    return Document(entries, partial(write_xml, tree), skipped)


def read_memory(path: Path, source: str, target: str) -> Document:
    """A .tmx file. Units that have the source language and lack the target language are translated."""
    tree, entries, skipped = read_xml(path), [], 0

    def add_variant(unit: Element, text: str) -> None:
        variant = ElementTree.SubElement(unit, "tuv", {LANGUAGE: target})
        ElementTree.SubElement(variant, "seg").text = text
        variant.tail = "\n"

    for unit in (element for element in elements(tree) if local(element) == "tu"):
        variants = {strip_region(part.get(LANGUAGE) or part.get("lang") or "-"): part for part in unit.findall("tuv")}
        segment = variants[strip_region(source)].find("seg") if strip_region(source) in variants else None
        if segment is not None and strip_region(target) not in variants:
            skipped += bool(len(segment))
            entries += [] if len(segment) else [Entry(segment.text or "", partial(add_variant, unit))]
    return Document(entries, partial(write_xml, tree), skipped)


def read_xml(path: Path) -> ElementTree.ElementTree:
    """The tree of an XML file, with its comments. Its names of namespaces are kept."""
    for _, name in ElementTree.iterparse(path, ["start-ns"]):
        with suppress(ValueError):  # a name such as ns1, which the library gives itself
            ElementTree.register_namespace(*cast("tuple[str, str]", name))
    builder = ElementTree.TreeBuilder(insert_comments=True, insert_pis=True)
    return cast("ElementTree.ElementTree", ElementTree.parse(path, ElementTree.XMLParser(target=builder)))


def write_xml(tree: ElementTree.ElementTree, path: Path) -> None:
    """Write a tree as XML in UTF-8."""
    tree.write(path, encoding="UTF-8", xml_declaration=True)


def elements(tree: ElementTree.ElementTree) -> Iterator[Element]:
    """The elements of a tree, without comments."""
    return (element for element in tree.iter() if isinstance(element.tag, str))
