"""The options of the command line: what they are, and which exclude each other."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from transformer.decoding.config import SamplingConfig, SearchConfig
from transformer.inference.both_engines import ENGINES
from transformer.inference.documents import ENDS
from transformer.inference.lines import replaceable


def output_file(text: str) -> Path:
    """The path of --output. Raises ArgumentTypeError for a folder."""
    if text.endswith(("/", os.sep)) or Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder; name a file in it")
    return Path(text)


def parse_options(description: str | None) -> argparse.Namespace:
    """The options of the command line. description: for --help."""
    parser = argparse.ArgumentParser(
        prog="python -m transformer", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("models", nargs="+", type=Path, metavar="MODEL", help="model folder; several are an ensemble")
    add("--input", type=Path, metavar="FILE", help="UTF-8, one sentence per line, or .gz; .po, .xliff, .tmx, .srt")
    add(
        "--output", type=output_file, metavar="FILE", help="appears when complete; FILE.parts keeps what is done so far"
    )
    add("--engine", choices=ENGINES, default="auto", help="auto (the default): CTranslate2 where it computes the same")
    search, sampling = SearchConfig(), SamplingConfig()
    add_number(add, "--beam-size", search.beam_size, "hypotheses kept per sentence; 1: greedy")
    add_number(add, "--length-penalty", search.length_penalty, "alpha of ((5 + n) / 6)^alpha")
    add_number(add, "--extra-length", search.extra_length, "a translation has at most source subwords + this many")
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


def check_options(options: argparse.Namespace) -> None:
    """Raise ValueError for options that exclude each other, and for folders and outputs that do not exist."""
    sampling = asdict(SamplingConfig())
    for name in ("seed", "temperature", "top_k", "top_p"):
        if getattr(options, name) != sampling[name] and not options.sample:
            raise ValueError(f"--{name.replace('_', '-')} needs --sample.")
    if options.alternatives < 0:
        raise ValueError(f"--alternatives {options.alternatives}: must be 1 or more.")
    if options.alternatives > options.beam_size and not options.sample:
        raise ValueError(f"--alternatives {options.alternatives} needs --beam-size {options.alternatives} or more.")
    if options.output and not options.output.parent.is_dir():
        raise ValueError(f"{options.output.parent} does not exist. Make this folder, or write to another one.")
    if not options.output and sys.stdout is None:
        raise ValueError("There is no output: standard output is closed. Use --output FILE.")
    if is_document(options) and (options.alternatives or not (options.output and replaceable(options.output))):
        raise ValueError(f"{options.input} is no plain text. It needs --output FILE, and no --alternatives.")
    for folder in options.models:
        if not folder.is_dir():
            raise ValueError(f"{folder} is not a folder. MODEL is one; text comes from standard input or --input FILE.")


def is_document(options: argparse.Namespace) -> bool:
    """Whether the input is a file of entries, such as a catalogue of messages."""
    return options.input is not None and options.input.suffix in ENDS
