"""Translate lines of text on the command line.

python -m transformer data/model < source.de > target.en
python -m transformer data/model --input source.de --output target.en --beam-size 8
python -m transformer data/model                                   in a terminal: translates each line you type
python -m transformer data/model --input de.po --output de.po      fills what is not translated yet, as fuzzy
python -m transformer data/ct2/int8                                the same with 8-bit weights, without torch
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import fields
from io import BufferedReader
from pathlib import Path

try:
    from tqdm import tqdm

    from transformer.decoding.config import SamplingConfig, SearchConfig
    from transformer.files import chunks, printable, sha256, whole_file
    from transformer.inference import documents
    from transformer.inference.engine import Progress
    from transformer.inference.lines import (
        PART_LINES,
        count_lines,
        line_groups,
        open_input,
        replaceable,
        write_in_parts,
    )
    from transformer.inference.options import check_options, is_document, parse_options
    from transformer.inference.remarks import RemarkCounts
    from transformer.inference.translation import Translation, join_translations
    from transformer.inference.translator import Translator
except ModuleNotFoundError as error:
    sys.exit(
        f"error: {sys.executable} has no package {error.name}. Nothing was run. Type `. .venv/bin/activate`, or "
        "`pip install .`, and the same command again."
    )


def translations(
    translator: Translator,
    options: argparse.Namespace,
    lines: list[str],
    first: int,
    remarks: RemarkCounts,
    progress: Progress,
) -> list[str]:
    """Lines to what is written for each: its best translation, alternatives or samples.

    first: the number of the first line. remarks: counts what may be wrong with the best translations.
    """
    if options.sample or options.alternatives:
        every = alternatives_or_samples(translator, options, lines, progress)
        return [output_of(options, number, some) for number, some in enumerate(every, first)]
    settings = {field.name: getattr(options, field.name) for field in fields(SearchConfig)}
    best = translator.translate_sentences(lines, not options.no_split, progress, **settings)
    for number, pairs in enumerate(best, first):
        remarks.add(number, pairs)
    return [f"{join_translations(pairs)}\n" for pairs in best]


def alternatives_or_samples(
    translator: Translator, options: argparse.Namespace, lines: list[str], progress: Progress
) -> list[list[Translation]]:
    """Lines to alternatives or samples of each."""
    count = options.alternatives or 1
    if options.sample:
        names = {field.name for field in fields(SamplingConfig)} - {"samples"}
        settings = {name: getattr(options, name) for name in names}
        return translator.sample(lines, samples=count, progress=progress, **settings)
    settings = {field.name: getattr(options, field.name) for field in fields(SearchConfig)}
    every = translator.alternatives(lines, progress=progress, **settings)
    return [hypotheses[:count] for hypotheses in every]


def output_of(options: argparse.Namespace, number: int, best: list[Translation]) -> str:
    """The translations of source line `number` to the text that is written for it."""
    if not options.alternatives:
        return best[0].text + "\n"
    return "".join(f"{number}\t{each.score:.6f}\t{each.log_probability:.6f}\t{each.text}\n" for each in best)


def translate_file(translator: Translator, options: argparse.Namespace, file: BufferedReader) -> None:
    """Translate the input to the output, at most PART_LINES lines at a time, with a progress bar."""
    total, remarks = count_lines(options.input), remarks_for(translator, options)
    groups = line_groups(file, str(options.input or "standard input"))
    with tqdm(total=total, unit="sentence", disable=None, leave=False) as progress:

        def translate(first: int, lines: list[str]) -> str:
            with translator.source.zone():  # memory stays flat, however many words a file has
                return "".join(translations(translator, options, lines, first, remarks, progress.update))

        if options.output and (path := replaceable(options.output)):
            write_in_parts(path, key_of(options), groups, translate, progress.update)
        else:
            write_through(options.output, groups, translate)
    show(remarks)


def translate_document(translator: Translator, options: argparse.Namespace) -> None:
    """Translate the entries of a catalogue, of subtitles or the like that have no translation, and write the file."""
    languages = translator.source.language, translator.target.language
    document = documents.read_document(options.input, *languages)
    lines, remarks, results = documents.lines_of(document.entries), remarks_for(translator, options), []
    with tqdm(total=len(lines), unit="sentence", disable=None, leave=False) as progress:
        for part in chunks(lines, PART_LINES):
            results += translations(translator, options, part, len(results) + 1, remarks, progress.update)
    documents.fill(document.entries, (result.removesuffix("\n") for result in results))
    with whole_file(replaceable(options.output) or options.output) as temporary:
        document.write(temporary)
    show(remarks)
    skipped = f" {document.skipped:,} have elements inside their text and were left out." if document.skipped else ""
    print(f"{len(document.entries):,} entries were translated.{skipped}", file=sys.stderr)


def write_through(path: Path | None, groups: Iterable[list[str]], translate: Callable[[int, list[str]], str]) -> None:
    """Write the translations of each group of lines at once, to a device or pipe, or to standard output."""
    first = 1
    with open(path, "w", encoding="utf-8") if path else nullcontext(sys.stdout) as out:
        for group in groups:
            out.write(translate(first, group))
            out.flush()
            first += len(group)


def remarks_for(translator: Translator, options: argparse.Namespace) -> RemarkCounts:
    """An empty count of remarks."""
    return RemarkCounts(translator.subwords, translator.seen_words, options.extra_length)


def show(remarks: RemarkCounts) -> None:
    """Print the remarks on standard error, one line each."""
    for line in remarks.describe():
        print(f"remark: {printable(line)}", file=sys.stderr)


def key_of(options: argparse.Namespace) -> str:
    """What translations depend on beside their lines, as a text: the files of the models, and the options."""
    knobs = {name: value for name, value in vars(options).items() if name not in ("models", "input", "output")}
    return json.dumps([knobs, *map(sha256, options.models)])


def translate_interactively(translator: Translator, options: argparse.Namespace) -> None:
    """Translate each line that the user types, until Ctrl-D or Ctrl-C."""
    for number in range(1, sys.maxsize):
        try:
            line = input(f"{translator.source.language}> ")
        except (EOFError, KeyboardInterrupt):
            print()
            return
        try:
            remarks = remarks_for(translator, options)
            print(*translations(translator, options, [line], number, remarks, lambda count: None), end="")
            show(remarks)
        except ValueError as error:
            print(f"error: {printable(str(error))}", file=sys.stderr)


def main() -> None:
    options = parse_options(__doc__)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a half-written --output is removed
    try:
        check_options(options)
        if sys.stdout:
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
        with open_input(options.input) as file:  # before the model is loaded, so that a missing file is noticed
            translator = Translator.load(*options.models, engine=options.engine)
            if options.input is None and file.isatty():
                import readline  # noqa: F401 (input() uses it for history and editing)

                translate_interactively(translator, options)
            elif is_document(options):
                translate_document(translator, options)
            else:
                translate_file(translator, options, file)
    except BrokenPipeError:  # the program that reads the output, for example `head`, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        sys.exit(130)
    except (ValueError, OSError) as error:
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else error
        sys.exit(f"error: {printable(str(reason))}")
    finally:
        gc.freeze()  # without it Python searches spaCy for garbage at the end, 0.1 s


if __name__ == "__main__":
    main()
