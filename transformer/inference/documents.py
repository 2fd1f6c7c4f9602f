"""Catalogues of messages (PO): what is not translated is filled and marked as fuzzy, all else stays byte for byte.

Other formats come and go by converters (docs/translating.md). The lines of a message that are one sentence are
translated as one, and wrapped into as many lines, columns apart; bullets, dashes and a pair of tags stay outside.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from shlex import quote
from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple, Protocol

from transformer.files import Mistake, conversion, read_lines, whole_file
from transformer.inference.html_text import HtmlText
from transformer.inference.lines import PACKED, Translate, finished_parts, parts_folder
from transformer.text.catalogue import read_catalogue, source_of_form
from transformer.text.formats import CONVERTERS, OPTIONS, START, TO_PAIRS, format_of_start
from transformer.text.frames import frame
from transformer.text.languages import strip_region
from transformer.text.sentences import is_lower

if TYPE_CHECKING:
    from tqdm import tqdm

PO = ".po"
HTML = (".html", ".htm", ".xhtml")
_KIT = (
    "Type `{0}2po{2} {1} a.po` of translate-toolkit, translate a.po, then `po2{0} --fuzzy -t {1} a.po OUTPUT`; "
    "docs/translating.md has more"
)
XLIFF, PAIRS = (".xliff", ".xlf", ".sdlxliff", ".mqxliff"), (".tmx", ".tsv", ".csv", ".jsonl", ".xlsx", ".xlsm")
REFUSED = {  # no plain text -> why
    **dict.fromkeys({*TO_PAIRS} - {*PACKED, *CONVERTERS}, "Give its sentences, one a line"),
    **dict.fromkeys(XLIFF, "Its converters lose elements inside a text. Give the .po that it was made of"),
    **dict.fromkeys(PAIRS, "It has texts of both sides. Train with it, or give one side"),
    **dict.fromkeys((".rst", ".adoc", ".tex"), "If it is plain, type `python -m transformer MODEL < {}`"),
    **dict.fromkeys(HTML, "It is HTML: name it {}.html"),
    ".ts": "Type `lconvert {} -o a.po` of Qt, translate a.po, then `lconvert a.po -o OUTPUT.ts`",
    ".pot": "It is a template: `msginit -i {} -l LANGUAGE -o LANGUAGE.po` makes the .po to fill",
    ".mo": "It is compiled: `msgunfmt {} -o a.po` makes the .po to fill",
}
_RUN = re.compile(r"(?<=\S)(?:[^\S\n]{2,}+|[^\S\n ])(?=\S)")  # white space that may be between columns
_CONTROL = re.compile(r"[\t\v\f\r\x1c-\x1f\x85\u2028\u2029]")
_ICU = re.compile(r"\{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,")
_BREAK = re.compile(r"(?<=\S)[^\S\n]*\n[^\S\n]*")
_ENDS = re.compile(r"[^\w\s,;–-]")
MARKED = ("#,", "#|", "msgctxt", "msgid")  # how the line with the flags of an entry begins, or that which follows it
# Encodings of catalogues. Python has others, of which some take time with the square of a text.
CHARSET = re.compile(
    r"(us-)?ascii|(cp|windows-?)\d+|(iso|utf)[-_]?[\d_-]+|(big5|euc|gb|johab|koi8|shift|tis|viscii)[\w-]*"
)
NAMES_OF_PEOPLE = ("", "translator-credits", "translator_credits", "Your names", "Your emails")  # and the header
WIDTH = 77  # characters of a line of a catalogue


class Text(NamedTuple):
    """A part of an entry that is translated as one. core: without what stays around it. breaks: its line ends."""

    before: str
    core: str
    after: str
    breaks: list[str]


class Entry(NamedTuple):
    """A text to translate. place: its line in the file, from 1. texts: what the model gets. fill: takes the result."""

    place: int
    texts: list[Text]
    fill: Callable[[str], None]


class Document(Protocol):
    """A file to translate: while there are `lines`, give `fill` their translations, in this order; then `write` it."""

    @property
    def lines(self) -> list[str]:
        """The lines to translate, none of them blank."""
        ...

    @property
    def places(self) -> list[int]:
        """For each of `lines` its line in the file, from 1."""
        ...

    def fill(self, translations: Iterable[str]) -> None: ...

    def write(self, path: Path, /) -> None: ...


class Catalogue:
    """The entries of a catalogue. write: writes it, with the translations that its entries got, to a path."""

    def __init__(self, entries: list[Entry], write: Callable[[Path], None]):
        self.entries, self.write = entries, write

    @property
    def lines(self) -> list[str]:
        return [text.core for entry in self.entries for text in entry.texts if text.core]

    @property
    def places(self) -> list[int]:
        return [entry.place for entry in self.entries for text in entry.texts if text.core]

    def fill(self, translations: Iterable[str]) -> None:
        waiting = iter(translations)
        for entry in self.entries:
            parts = [
                text.before + (wrapped(next(waiting), text.breaks) if text.core else "") + text.after
                for text in entry.texts
            ]
            entry.fill("".join(parts))
        self.entries = []


def is_document(path: Path | None) -> bool:
    """Whether a file is a catalogue or HTML, by its name; None is standard input.

    Raises Mistake for other formats, by their names or first bytes.
    """
    if path is None:
        return False
    name, packed = quote(str(path)), path.suffix.lower() == ".gz"
    end = path.with_suffix("").suffix.lower() if packed else path.suffix.lower()
    if packed and end in (PO, *CONVERTERS, *REFUSED):
        raise Mistake(f"{path} is packed. Nothing was translated. Unpack it: gunzip -k {name}")
    if end in (PO, *HTML):
        return True
    if end not in (*CONVERTERS, *REFUSED) and not packed and path.is_file():
        with open(path, "rb") as file:
            end = format_of_start(file.read(START))
    tool = CONVERTERS.get(end, "")
    if way := _KIT.format(tool, name, OPTIONS.get(tool, "")) if tool else REFUSED.get(end, "").format(name):
        raise Mistake(f"{path} is no plain text. Nothing was translated. {way}.")
    return False


def translate_document(
    document: Document, output: Path, key: str, translate: Translate, progress: tqdm, resume: Callable
) -> None:
    """Translate a document, and write it to `output`.

    key, resume: see lines.finished_parts, which keeps what is translated so far.
    """
    progress.total = 0
    with parts_folder(output) as folder:
        while lines := document.lines:
            progress.total += len(lines)
            parts = finished_parts(folder, key, [lines], translate, resume)
            document.fill(line for part in parts for line in read_lines(part))
        with whole_file(output) as temporary:
            document.write(temporary)


def texts_of(text: str) -> list[Text]:
    """The texts of an entry: the columns of its lines, and lines of one sentence together."""
    parts = [[""]]  # the lines of texts, and between two of them what stays
    for first, *rest in columns_of(text.split("\n")):
        goes_on = not rest and first.strip() and parts[-1][-1].strip() and is_lower(first.strip()[0])
        after = re.match(r"\W*", parts[-1][-1][::-1]) if goes_on else None  # backwards, what follows the last word
        if after and not _ENDS.search(after[0]):
            parts[-1].append(first)
        else:
            parts += [[part] for part in ("\n", first, *rest)]
    texts = ["\n".join(part) for part in parts]
    return [text_of(*pair) for pair in zip(texts[2::2], [*texts[3::2], ""], strict=True)]


def columns_of(lines: list[str]) -> list[list[str]]:
    """Each line as its columns and the white space between them. Two spaces count where a gap of another line ends."""
    places = Counter(run.end() for line in lines for run in _RUN.finditer(line))

    def cut(run: re.Match[str]) -> str:
        two = run[0] == "  " and run.string[run.start() - 1] not in ".!?" and places[run.end()] > 1
        return f"\n{run[0]}\n" if two or len(run[0]) > 2 or _CONTROL.search(run[0]) else run[0]

    return [_RUN.sub(cut, line).split("\n") for line in lines]


def text_of(text: str, following: str) -> Text:
    """A text with what stays around it. following: what stays behind it."""
    before, core, after = frame(text)
    start = core.index(inner := core.strip())
    after = core[start + len(inner) :] + after + following
    return Text(before + core[:start], _BREAK.sub(" ", inner), after, _BREAK.findall(inner))


def wrapped(text: str, breaks: list[str]) -> str:
    """A text in lines of about the same length, with these line ends between them."""
    if not breaks:
        return text
    most = len(breaks) + 1
    width = -(-len(text) // most)
    while len(parts := wrap(text, max(1, width), break_long_words=False, break_on_hyphens=False) or [""]) > most:
        width += 1
    return "".join(part + end for part, end in zip(parts, [*breaks[: len(parts) - 1], ""], strict=True))


def read_document(path: Path, source: str, target: str, placeholders: bool) -> Document:
    """A file that `is_document`. placeholders: whether the model has them. Raises Mistake as for a catalogue."""
    if path.suffix.lower() == PO:
        return read_catalogue_file(path, source, target)
    try:
        return HtmlText(path.read_bytes().decode(), placeholders)
    except UnicodeDecodeError as error:
        remedy = f"{conversion(error.object, str(path))}. Correct the charset in it"
        raise Mistake(f"{path} is not UTF-8 at byte {error.start + 1}. Nothing was translated. {remedy}.") from None


def read_catalogue_file(path: Path, source: str, target: str) -> Catalogue:
    """A .po file; filled in its own encoding, or in UTF-8 if that lacks a character.

    Raises Mistake if it is damaged, or for another language than `target`.
    """
    import polib

    try:
        encoding = polib.detect_encoding(str(path))
        if not CHARSET.fullmatch(encoding.lower()):
            raise LookupError(f"charset={encoding[:40]}")
        text = path.read_bytes().decode(encoding)
        catalogue = read_catalogue(text)
    except (OSError, UnicodeDecodeError, LookupError, Mistake) as error:
        raise Mistake(f"{path} is damaged ({error}). Nothing was translated. `msgfmt -c` says more.") from None
    if not catalogue:
        raise Mistake(f"{path} has no entries. Nothing was translated. What made it found no text: look at its input.")
    code, rule = (catalogue.metadata.get(field) for field in ("Language", "Plural-Forms"))
    if code and strip_region(code[:40]) != strip_region(target):
        raise Mistake(
            f"{path} is for {code[:40]}, and this model translates {source} to {target}. Nothing was translated. Use "
            "another model, or correct the language in the file."
        )
    lines = text.split("\n")
    new: dict[int, list[str]] = {}  # line -> the lines that take its place
    entries = []
    starts = [(entry.linenum or 1) - 1 for entry in catalogue]
    for entry, start, end in zip(catalogue, starts, [*starts[1:], len(lines)], strict=False):
        strings = entry.msgstr_plural if entry.msgid_plural else {None: entry.msgstr}
        if entry.msgid in NAMES_OF_PEOPLE or entry.obsolete or _ICU.search(entry.msgid):
            continue
        for form in (form for form, string in sorted(strings.items()) if not string):
            own = entry.msgid if form is None else source_of_form(entry, form, rule)
            marked, first = (line_with(lines, start, words, end) for words in (MARKED, MARKED[2:]))
            string = "msgstr" if form is None else f"msgstr[{form}]"
            if (place := line_with(lines, first, string, end)) == end:
                raise Mistake(f"{path} is damaged (line {first + 1}: no {string}). Nothing was translated. Correct it.")
            entries.append(Entry(first + 1, texts_of(own), setter(lines, marked, place, new)))

    def write(path: Path) -> None:
        content = "\n".join(line for place, own in enumerate(lines) for line in new.get(place, [own]))
        try:
            path.write_bytes(content.encode(encoding))
        except UnicodeEncodeError:
            content = re.sub(r"(Content-Type:[^\"]*charset=)[\w.:-]+", r"\1UTF-8", content, count=1)
            path.write_bytes(content.encode())

    return Catalogue(entries, write)


def line_with(lines: list[str], start: int, words: str | tuple[str, ...], end: int) -> int:
    """The place of the first line that begins with one of these words, from `start` to `end`; `end` without one."""
    return next((n for n in range(start, end) if lines[n].lstrip("\ufeff").lstrip().startswith(words)), end)


def setter(lines: list[str], flags: int, place: int, new: dict[int, list[str]]) -> Callable[[str], None]:
    """The function that takes the translation of a form. flags: the line to mark. place: of its msgstr."""

    def set_form(text: str) -> None:
        end = "\r" if lines[place].endswith("\r") else ""
        new[place] = [line.replace("\a", r"\a") + end for line in quoted(lines[place].partition('"')[0].strip(), text)]
        if lines[flags].startswith("#,"):
            is_fuzzy = "fuzzy" in re.split(r"[,\s]+", lines[flags])
            new[flags] = [lines[flags] if is_fuzzy else f"{lines[flags].rstrip()}, fuzzy{end}"]
        else:
            new[flags] = [f"#, fuzzy{end}", lines[flags]]

    return set_form


def quoted(name: str, text: str) -> list[str]:
    """A field of a catalogue with a text, in lines of about WIDTH characters."""
    import polib

    parts, single = re.findall(r".*?\n|.+", text), f'{name} "{polib.escape(text)}"'
    if len(parts) <= 1 and len(single) <= WIDTH + 2:
        return [single]
    kept = dict.fromkeys(("expand_tabs", "drop_whitespace", "break_long_words", "replace_whitespace"), False)
    pieces = [piece for part in parts for piece in wrap(part, WIDTH, **kept)]
    return [f'{name} ""', *(f'"{polib.escape(piece)}"' for piece in pieces)]
