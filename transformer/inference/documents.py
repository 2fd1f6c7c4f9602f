"""Files whose entries are translated: catalogues (PO), XLIFF, translation memories (TMX) and subtitles (SRT).

What is translated already stays. What a model adds is marked where the format can say so: fuzzy in PO; the state
needs-review-translation in XLIFF 1, translated in XLIFF 2. An entry of several lines is translated line by line and
keeps the white space around each; a subtitle is one text, but for the lines of a dialogue.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING
from xml.etree.ElementTree import ParseError

from transformer.files import read_lines, read_text, whole_file
from transformer.inference.entries import Document, Entry, check_languages, fill, lines_of
from transformer.inference.lines import Translate, finished_parts, parts_folder
from transformer.inference.xml_documents import read_exchange, read_memory
from transformer.text.formats import cues

if TYPE_CHECKING:
    import polib
    from tqdm import tqdm

ENDS = (".po", ".xliff", ".xlf", ".tmx", ".srt")
NO_LINES = (".tsv", ".csv", ".json", ".jsonl", ".vtt", ".html", ".docx", ".pdf")  # not a sentence a line, nor in ENDS
WIDTH = 42  # characters of a line of a subtitle


def read_document(path: Path, source: str, target: str) -> Document:
    """A file of one of the formats ENDS. Raises ValueError if it is damaged, or between other languages."""
    read = {".po": read_catalogue, ".srt": read_subtitles, ".tmx": read_memory}.get(path.suffix.lower(), read_exchange)
    try:
        return read(path, source, target)
    except (ParseError, UnicodeDecodeError, LookupError) as error:
        raise ValueError(f"{path} is damaged ({error}). Nothing was translated. Copy it again.") from None


def is_document(path: Path | None) -> bool:
    """Whether a file has entries, by its name. None, which is standard input, has none.

    Raises ValueError for one that is packed or compiled, or has neither lines nor entries that can be read.
    """
    if path is None:
        return False
    *_, inner, suffix = ["", "", *(end.lower() for end in path.suffixes)]
    packed = suffix in (".gz",)
    if suffix == ".mo" or (packed and inner in ENDS):
        raise ValueError(f"{path} is packed or compiled. Nothing was translated. Give the .po or other file itself.")
    if (inner if packed else suffix) in NO_LINES:
        raise ValueError(
            f"{path} is no plain text, and none of {', '.join(ENDS)}. Nothing was translated. Give its "
            "sentences alone, one a line."
        )
    return suffix in ENDS


def translate_document(
    path: Path,
    output: Path,
    languages: tuple[str, str],
    key: str,
    translate: Translate,
    progress: tqdm,
    resume: Callable,
) -> str:
    """Translate the entries of a file that have no translation, and write it to `output`. Returns the counts, in words.

    languages: of the model. key, resume: see lines.finished_parts, which keeps what is translated so far.
    """
    document = read_document(path, *languages)
    lines = lines_of(document.entries)
    progress.total = len(lines)
    with parts_folder(output) as folder:
        parts = finished_parts(folder, key, [lines], translate, resume)
        fill(document.entries, (line for part in parts for line in read_lines(part)))
        with whole_file(output) as temporary:
            document.write(temporary)
    skipped = f" {document.skipped:,} have elements inside their text and were left out." if document.skipped else ""
    return f"{len(document.entries):,} entries were translated.{skipped}"


def read_catalogue(path: Path, source: str, target: str) -> Document:
    """A .po file, to be written in UTF-8. Of plural forms, entries of their own, the first translates the singular."""
    import polib

    try:
        file = polib.pofile(str(path))
        text, newline = read_text(path, file.encoding)
    except OSError as error:
        raise ValueError(f"{path} is damaged ({error}). Nothing was translated. Correct it.") from None
    check_languages(path, (None, file.metadata.get("Language")), (source, target))
    keep_width(file, text)
    if file.encoding.lower() not in ("utf-8", "utf8"):
        file.encoding, file.metadata["Content-Type"] = "utf-8", "text/plain; charset=UTF-8"

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
    return Document(entries, lambda path: file.save(str(path), newline=newline))


def keep_width(file: polib.POFile, text: str) -> None:
    """Wrap the lines of a catalogue as in its text, or not at all, whichever changes fewer of them."""
    lines = {*text.split("\n")}

    def changed(width: int) -> int:
        file.wrapwidth = width
        return len(lines - {*str(file).split("\n")})

    file.wrapwidth = min((file.wrapwidth, 0), key=changed)


def read_subtitles(path: Path, source: str, target: str) -> Document:
    """A .srt file. All cues are translated; the lines of a translation have WIDTH characters at most."""
    (text, newline), parts, end = read_text(path, "utf-8"), [], 0

    def set_part(place: int, translation: str) -> None:
        parts[place] = "\n".join(line for part in translation.split("\n") for line in wrap(part, WIDTH)) + "\n"

    entries = []
    for cue in cues(text):
        lines = cue["text"].split("\n")[:-1] if cue["text"].endswith("\n") else cue["text"].split("\n")
        dialogue = any(line.lstrip().startswith(("-", "–")) for line in lines)
        parts += [text[end : cue.start("text")], cue["text"]]
        end = cue.end("text")
        if cue["text"]:
            joined = "\n".join(lines) if dialogue else " ".join(cue["text"].split())
            entries.append(Entry(joined, partial(set_part, len(parts) - 1)))
    if text.strip() and not parts:
        raise ValueError(
            f"{path} has no times such as 00:00:01,000 --> 00:00:02,000. Nothing was translated. Add them."
        )

    def write(path: Path) -> None:
        path.write_text("".join([*parts, text[end:]]), encoding="utf-8", newline=newline)

    return Document(entries, write)
