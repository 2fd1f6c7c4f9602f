"""Files of XML whose entries are translated: XLIFF, and translation memories (TMX)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import cast
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from transformer.inference.entries import Document, Entry, check_languages
from transformer.text.formats import LANGUAGE, local
from transformer.text.languages import strip_region

_UNTRANSLATED = ("new", "initial", "needs-translation")  # states of XLIFF, which may come with a copy of the source


def read_exchange(path: Path, source: str, target: str) -> Document:
    """A .xliff file, version 1 or 2."""
    tree, entries, skipped = read_xml(path), [], 0

    def set_target(unit: Element, before: Element, old: Element | None, text: str) -> None:
        new = Element(f"{unit.tag.removesuffix(local(unit))}target")
        new.text, new.tail = text, before.tail
        if old is not None:
            unit.remove(old)
        unit.insert([*unit].index(before) + 1, new)
        if local(unit) == "segment":
            unit.set("state", "translated")
        else:
            new.set("state", "needs-review-translation")

    translate = {tree.getroot(): "yes"}  # whether an element is to be translated: as it says, or the one around it
    for element in [*elements(tree)]:
        translate |= {part: part.get("translate", translate[element]) for part in element}
        codes = [element.get(name) for name in ("source-language", "srcLang", "target-language", "trgLang")]
        check_languages(path, (codes[0] or codes[1], codes[2] or codes[3]), (source, target))
        parts = {local(part): part for part in element if isinstance(part.tag, str)}
        if local(element) not in ("trans-unit", "segment") or "source" not in parts or translate[element] == "no":
            continue
        old = parts.get("target")
        state = old is not None and (old.get("state") or element.get("state"))
        if old is None or not (len(old) or (old.text or "").strip()) or state in _UNTRANSLATED:
            skipped += bool(len(parts["source"]))
            if not len(parts["source"]):
                before = parts.get("seg-source", parts["source"])
                entries.append(Entry(parts["source"].text or "", partial(set_target, element, before, old)))
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
