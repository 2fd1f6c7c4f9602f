"""Translate lines of text on the command line.

python -m transformer data/model < source.de > target.en
python -m transformer data/model --input source.de --output target.en --beam-size 8
python -m transformer data/model                                   in a terminal: translates each line you type
python -m transformer data/ct2/int8                                the same with 8-bit weights, without torch
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import fields
from io import BufferedReader
from pathlib import Path
from typing import cast

try:
    from tqdm import tqdm

    from transformer.decoding.config import SamplingConfig, SearchConfig
    from transformer.files import chunks, whole_file
    from transformer.inference.both_engines import ENGINES
    from transformer.inference.engine import Progress
    from transformer.inference.translator import Translation, Translator
except ModuleNotFoundError as error:
    sys.exit(
        f"error: {sys.executable} has no package {error.name}. Nothing was run. Type `. .venv/bin/activate`, or "
        "`pip install .`, and the same command again."
    )

CHUNK_LINES = 1000  # most lines that are translated in one call, sorted and batched together
READ_BYTES = 1 << 20  # most bytes that are read at a time


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
    add("--input", type=Path, metavar="FILE", help="UTF-8, one sentence per line; default: standard input")
    add("--output", type=output_file, metavar="FILE", help="written completely, at the end; default: standard output")
    add("--engine", choices=ENGINES, default="auto", help="auto (the default): CTranslate2 where it computes the same")
    search, sampling = SearchConfig(), SamplingConfig()
    add_number(add, "--beam-size", search.beam_size, "hypotheses kept per sentence; 1: greedy")
    add_number(add, "--length-penalty", search.length_penalty, "alpha of ((5 + n) / 6)^alpha")
    add_number(add, "--extra-length", search.extra_length, "a translation has at most source subwords + this many")
    add("--replace-unk", action="store_true", help="replace <unk> by the source word it attends to; for whole words")
    add(
        "--alternatives",
        type=int,
        default=0,
        metavar="N",
        help="N lines for each: line number, score, log-probability, translation, separated by tabs",
    )
    add("--sample", action="store_true", help="draw translations at random instead of searching for the best one")
    add_number(add, "--seed", sampling.seed, "of --sample")
    add_number(add, "--temperature", sampling.temperature, "of --sample: below 1 is less random")
    add_number(add, "--top-k", sampling.top_k, "of --sample: draw from the N likeliest subwords; 0: all")
    add_number(add, "--top-p", sampling.top_p, "of --sample: draw from the likeliest subwords that reach probability N")
    options = parser.parse_args()
    unused = [
        f"--{name.replace('_', '-')}"
        for name in ("seed", "temperature", "top_k", "top_p")
        if getattr(options, name) != getattr(sampling, name) and not options.sample
    ]
    if unused:
        parser.error(f"{', '.join(unused)} needs --sample")
    return options


def add_number(add: Callable, option: str, default: float, help: str) -> None:
    """Add an option that takes a number of the type of its default."""
    add(option, type=type(default), default=default, metavar="N", help=f"{help} (default {default})")


def translations(
    translator: Translator, options: argparse.Namespace, lines: list[str], progress: Progress
) -> list[list[Translation]]:
    """Lines to the translations of each that the command line asks for: the best, alternatives or samples."""
    count = options.alternatives or 1
    if options.sample:
        names = {field.name for field in fields(SamplingConfig)} - {"samples"}
        settings = {name: getattr(options, name) for name in names}
        return translator.sample(lines, samples=count, progress=progress, **settings)
    settings = {field.name: getattr(options, field.name) for field in fields(SearchConfig)}
    every = translator.alternatives(lines, progress=progress, best_only=not options.alternatives, **settings)
    return [hypotheses[:count] for hypotheses in every]


def output_of(options: argparse.Namespace, number: int, best: list[Translation]) -> str:
    """The translations of source line `number` to the text that is written for it."""
    if not options.alternatives:
        return best[0].text + "\n"
    return "".join(f"{number}\t{each.score:.6f}\t{each.log_probability:.6f}\t{each.text}\n" for each in best)


def line_groups(file: BufferedReader, name: str) -> Iterator[list[str]]:
    """Yield the lines of a file, in groups that are there without waiting for more; only a line feed ends a line.

    A group has CHUNK_LINES lines at most. Raises ValueError for a line that is not UTF-8. name: of the file, for this.
    """
    count, rest = 0, b""
    while data := file.read1(READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        for group in chunks(lines, CHUNK_LINES):
            yield [decoded(line, f"{name}:{number}") for number, line in enumerate(group, start=count + 1)]
            count += len(group)
    if rest:
        yield [decoded(rest, f"{name}:{count + 1}")]


def decoded(line: bytes, place: str) -> str:
    """The text of a line. Raises ValueError, which names its place, if it is not UTF-8."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{place}: not UTF-8. Convert it, for example with iconv -t utf-8.") from None


def translate_file(translator: Translator, options: argparse.Namespace) -> None:
    """Translate the input to the output, at most CHUNK_LINES lines at a time, with a progress bar."""
    name = str(options.input or "standard input")
    total = None
    if options.input:
        with open(options.input, "rb") as file:
            total = sum(1 for _ in file)
    stdin = nullcontext(cast("BufferedReader", sys.stdin.buffer))
    source = open(options.input, "rb") if options.input else stdin  # noqa: SIM115 (closed below)
    target = whole_file(options.output) if options.output else nullcontext(None)
    with source as file, target as path, tqdm(total=total, unit="sentence", disable=None, leave=False) as progress:
        out = open(path, "w", encoding="utf-8", newline="\n") if path else sys.stdout  # noqa: SIM115
        number = 0
        for group in line_groups(file, name):
            for best in translations(translator, options, group, progress.update):
                number += 1
                out.write(output_of(options, number, best))
            out.flush()
        if path:
            out.close()


def translate_interactively(translator: Translator, options: argparse.Namespace) -> None:
    """Translate each line that the user types, until Ctrl-D or Ctrl-C."""
    for number in range(1, sys.maxsize):
        try:
            line = input(f"{translator.source.language}> ")
        except (EOFError, KeyboardInterrupt):
            print()
            return
        try:
            (best,) = translations(translator, options, [line], lambda count: None)
            print(output_of(options, number, best), end="")
        except ValueError as error:
            print(f"error: {error}", file=sys.stderr)


def main() -> None:
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a half-written --output is removed
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
    try:
        if options.alternatives < 0:
            raise ValueError(f"--alternatives {options.alternatives}: must be 1 or more.")
        if options.alternatives > options.beam_size and not options.sample:
            raise ValueError(f"--alternatives {options.alternatives} needs --beam-size {options.alternatives} or more.")
        if options.output and not options.output.parent.is_dir():
            raise ValueError(f"{options.output.parent} does not exist. Make this folder, or write to another one.")
        for folder in options.models:
            if not folder.is_dir():
                raise ValueError(
                    f"{folder} is not a folder. MODEL is one; text comes from standard input or --input FILE."
                )
        translator = Translator.load(*options.models, engine=options.engine)
        if options.input is None and sys.stdin is None:
            raise ValueError("There is no input: standard input is closed. Use --input FILE.")
        if options.input is None and sys.stdin.isatty():
            import readline  # noqa: F401 (input() uses it for history and editing)

            translate_interactively(translator, options)
        else:
            translate_file(translator, options)
    except BrokenPipeError:  # the program that reads the output, for example `head`, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        sys.exit(130)
    except (ValueError, OSError) as error:
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else error
        sys.exit(f"error: {reason}")
    finally:
        gc.freeze()  # without it Python searches spaCy for garbage at the end, 0.1 s


if __name__ == "__main__":
    main()
