"""Translate lines of text on the command line.

python -m transformer data/model < source.de > target.en
python -m transformer data/model --input source.de --output target.en --beam-size 8
python -m transformer data/model                                   in a terminal: translates each line you type
python -m transformer data/model --input de.po --output de.po      fills what is not translated yet, as fuzzy
python -m transformer data/model --input a.html --output b.html    keeps the markup
python -m transformer data/ct2/int8                                the same with 8-bit weights, without torch
python -m transformer serve data/model                             a page, and LibreTranslate's interface
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, fields
from io import BufferedReader
from pathlib import Path

from transformer.files import Mistake, mistake_line

try:
    from tqdm import tqdm

    from transformer.decoding.config import SamplingConfig, SearchConfig
    from transformer.files import escape_controls, sha256
    from transformer.inference.both_engines import ENGINES
    from transformer.inference.documents import PO, is_document, read_document, translate_document
    from transformer.inference.engine import Progress
    from transformer.inference.lines import (
        count_lines,
        line_groups,
        open_input,
        replaceable,
        write_in_parts,
        write_through,
    )
    from transformer.inference.remarks import RemarkCounts
    from transformer.inference.translation import SentencePair, Translation, join_translations
    from transformer.inference.translator import Translator
    from transformer.verdict import verdict
except ModuleNotFoundError as error:
    if line := mistake_line(error):
        sys.exit(f"error: {line}")
    raise


def output_file(text: str) -> Path:
    """The path of --output. Raises ArgumentTypeError for a folder."""
    if text.endswith(("/", os.sep)) or Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder; name a file in it")
    return Path(text)


def parse_options() -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m transformer", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("models", nargs="+", type=Path, metavar="MODEL", help="model folder; several are an ensemble")
    add("--input", type=Path, metavar="FILE", help="UTF-8, one sentence per line, or .gz; a catalogue: .po; .html")
    add("--output", type=output_file, metavar="FILE", help="appears when complete; FILE.parts keeps what is done")
    add("--engine", choices=ENGINES, default="auto", help="auto (the default): CTranslate2 where it computes the same")
    search, sampling = SearchConfig(), SamplingConfig()
    add_number(add, "--beam-size", search.beam_size, "hypotheses kept per sentence; 1: greedy")
    add_number(add, "--length-penalty", search.length_penalty, "alpha of ((5 + n) / 6)^alpha")
    add_number(add, "--extra-length", search.extra_length, "a translation has at most source subwords + this many")
    add("--glossary", type=Path, metavar="FILE", help="a term, a tab and its translation in each line")
    add("--no-split", action="store_true", help="translate a line of several sentences as one")
    add("--replace-unk", action="store_true", help="replace <unk> by the source word it attends to; for whole words")
    add(
        "--alternatives",
        type=int,
        default=0,
        metavar="N",
        help="N lines for each, not split: line number, score, log-probability, translation, separated by tabs",
    )
    add("--sample", action="store_true", help="draw a translation of each line, which is not split, at random")
    add_number(add, "--seed", sampling.seed, "of --sample")
    add_number(add, "--temperature", sampling.temperature, "of --sample: below 1 is less random")
    add_number(add, "--top-k", sampling.top_k, "of --sample: draw from the N likeliest subwords; 0: all")
    add_number(add, "--top-p", sampling.top_p, "of --sample: draw from the likeliest subwords that reach probability N")
    return parser.parse_args()


def add_number(add: Callable, option: str, default: float, help: str) -> None:
    """Add an option that takes a number of the type of its default."""
    add(option, type=type(default), default=default, metavar="N", help=f"{help} (default {default})")


def search_config(options: argparse.Namespace) -> SearchConfig:
    """The settings of the search that the options name."""
    return SearchConfig(**{field.name: getattr(options, field.name) for field in fields(SearchConfig)})


def translations(
    translator: Translator,
    options: argparse.Namespace,
    lines: list[str],
    first: int,
    remarks: RemarkCounts,
    progress: Progress,
) -> list[str]:
    """Lines to what is written for each: its best translation, alternatives or samples.

    first: the number of the first line. remarks: counts what may be wrong with the first translations.
    """
    if options.sample or options.alternatives:
        every = alternatives_or_samples(translator, options, lines, progress)
        for number, (line, some) in enumerate(zip(lines, every, strict=True), first):
            remarks.add(number, [SentencePair(line, some[0])])
        return [output_of(options, number, some) for number, some in enumerate(every, first)]
    best = translator.translate_sentences(lines, not options.no_split, progress, config=search_config(options))
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
    every = translator.alternatives(lines, progress=progress, config=search_config(options))
    return [hypotheses[:count] for hypotheses in every]


def output_of(options: argparse.Namespace, number: int, best: list[Translation]) -> str:
    """The translations of source line `number` to the text that is written for it."""
    if not options.alternatives:
        return best[0].text + "\n"
    return "".join(f"{number}\t{each.score:.6f}\t{each.log_probability:.6f}\t{each.text}\n" for each in best)


def translate_file(translator: Translator, options: argparse.Namespace, file: BufferedReader) -> None:
    """Translate the input to the output, at most PART_LINES lines at a time, with a progress bar."""
    languages = translator.source.language, translator.target.language
    placeholders = translator.source.placeholders
    document = read_document(options.input, *languages, placeholders) if is_document(options.input) else None
    remarks = RemarkCounts()
    groups = line_groups(file, str(options.input or "standard input"))
    total, resumed = None if document else count_lines(options.input), 0
    with tqdm(total=total, unit="sentence", disable=None, leave=False) as progress:

        def translate(first: int, lines: list[str]) -> str:
            remarks.places = document.places if document else ()
            return "".join(translations(translator, options, lines, first, remarks, progress.update))

        def resume(count: int) -> None:
            nonlocal resumed
            resumed += count
            progress.update(count)

        path = replaceable(options.output) if options.output else None
        if path and document:
            translate_document(document, path, key_of(options), translate, progress, resume)
            progress.write(f"{progress.total:,} texts were translated.", file=sys.stderr)
        elif path:
            write_in_parts(path, key_of(options), groups, translate, resume)
        else:
            write_through(options.output, groups, translate)
    print_remarks(remarks)
    if resumed:
        print(f"remark: {resumed:,} lines of an earlier run are not looked at again", file=sys.stderr)


def print_remarks(remarks: RemarkCounts) -> None:
    """Print the remarks on standard error, one line each."""
    for line in remarks.describe():
        print(f"remark: {escape_controls(line)}", file=sys.stderr)


def key_of(options: argparse.Namespace) -> str:
    """What translations depend on beside their lines, as a text: the files of the models, and the options."""
    paths = ("models", "input", "output", "glossary")
    knobs = {name: value for name, value in vars(options).items() if name not in paths}
    return json.dumps([knobs, *map(sha256, [*options.models, *filter(None, [options.glossary])])])


def translate_interactively(translator: Translator, options: argparse.Namespace) -> None:
    """Translate each line that the user types, until Ctrl-D or Ctrl-C."""
    for number in range(1, sys.maxsize):
        try:
            line = input(f"{translator.source.language}> ")
        except (EOFError, KeyboardInterrupt):
            print()
            return
        try:
            remarks = RemarkCounts()
            print(*translations(translator, options, [line], number, remarks, lambda count: None), end="")
            print_remarks(remarks)
        except Mistake as error:
            print(f"error: {escape_controls(str(error))}", file=sys.stderr)


def check_options(options: argparse.Namespace) -> None:
    """Raise Mistake for options that exclude each other, and for folders and outputs that do not exist."""
    sampling = asdict(SamplingConfig())
    for name in ("seed", "temperature", "top_k", "top_p"):
        if getattr(options, name) != sampling[name] and not options.sample:
            raise Mistake(f"--{name.replace('_', '-')} needs --sample.")
    if options.alternatives < 0:
        raise Mistake(f"--alternatives {options.alternatives}: must be 1 or more.")
    if options.alternatives > options.beam_size and not options.sample:
        raise Mistake(f"--alternatives {options.alternatives} needs --beam-size {options.alternatives} or more.")
    if options.output and not (parent := (replaceable(options.output) or options.output).parent).is_dir():
        raise Mistake(f"{parent} does not exist. Make this folder, or write to another one.")
    if not options.output and sys.stdout is None:
        raise Mistake("There is no output: standard output is closed. Use --output FILE.")
    if is_document(options.input) and (options.alternatives or not (options.output and replaceable(options.output))):
        raise Mistake(f"{options.input} is no plain text. It needs --output FILE, and no --alternatives.")
    if options.glossary and not options.glossary.is_file():
        raise Mistake(f"--glossary {options.glossary}: no such file.")
    if options.glossary and options.sample:
        raise Mistake("--glossary is for translations that are searched. Leave out --sample.")
    files = options.input, options.output
    if all(file and file.is_file() for file in files) and files[0].suffix.lower() != PO and files[1].samefile(files[0]):
        raise Mistake(f"--output {options.output} is the input, which would be lost. Name another file.")
    for folder in options.models:
        if not folder.is_dir():
            raise Mistake(f"{folder} is not a folder. MODEL is one; text comes from standard input or --input FILE.")


def main() -> None:
    """Translate, or `serve`."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a half-written --output is removed
    try:
        if sys.argv[1:2] == ["serve"]:
            # Packages swallow KeyboardInterrupt while they are imported. The server has its own handler.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            try:
                from transformer.serving.command import main as serve
            except ModuleNotFoundError as error:
                if mistake_line(error):
                    raise Mistake(f"The package {error.name} is missing. Type `pip install '.[serve]'`.") from None
                raise
            serve()
            return
        options = parse_options()
        check_options(options)
        if sys.stdout:
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
        with open_input(options.input) as file:  # before the model is loaded, so that a missing file is noticed
            translator = Translator.load(*options.models, engine=options.engine, glossary=options.glossary)
            if worth := verdict(translator.scores):
                print(f"{options.models[0]}: {escape_controls(worth)}", file=sys.stderr)
            if options.input is None and file.isatty():
                import readline  # noqa: F401 (input() uses it for history and editing)

                translate_interactively(translator, options)
            else:
                translate_file(translator, options, file)
    except BrokenPipeError:  # the program that reads the output, for example `head`, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if line := mistake_line(error):
            sys.exit(f"error: {escape_controls(line)}")
        traceback.print_exc()
        sys.exit("error: This is a bug of this program, not your mistake. Its traceback is above.")
    finally:
        gc.freeze()  # without it Python searches spaCy for garbage at the end, 0.1 s


if __name__ == "__main__":
    main()
