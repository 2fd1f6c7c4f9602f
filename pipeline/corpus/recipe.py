"""Write a params.yaml for your own text, chosen by its size, with a line for each knob that says why.

    python -m pipeline recipe pairs.tsv --source de --target en

INPUT is a file of pairs (.tsv, .csv, .json, .jsonl, .xlsx, .tmx, .po), a text file for each language, or a folder of
train, valid and test (docs/corpora.md). A folder that the stage download reads is used as it is; all else is written to
corpora/NAME, with valid and test drawn from train where they are missing. A params.yaml with edits of yours is not
replaced, unless with --force.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from pipeline.corpus.own_text import commit_command, describe_source, name_of, texts_of, write_corpus
from pipeline.corpus.tables import Table
from pipeline.workflow.params import Params, read_values
from pipeline.workflow.versions import ROOT
from transformer.corpora.parallel_text import ParallelText, user_splits
from transformer.corpora.rules import other_languages
from transformer.files import Mistake, escape_controls, sha256_text, write_text
from transformer.model_folder import read_model_json, starting_model
from transformer.reporting.measurements import expectation
from transformer.text.placeholders import disagree, placeholders
from transformer.text.words import splitter_of

FEW_PAIRS, SIZES = 1_000, (10_000, 100_000)  # pairs: fewer are too few; from one column of KNOBS to the next
LOOK = 200_000  # pairs of which words and lengths are counted
LENGTHS, SHARE = (100, 150, 250), 0.995  # values of max_length; the share of pairs that should fit
LETTERS = 4  # of a subword, about
START = "init_from to a model of the same sizes, placeholders and kind of text, and of one of the languages"
UNEDITED = "Checksum of the lines below: "  # in the first line of a params.yaml
# Knob -> its values for up to 10,000 and 100,000 pairs, and for more; and why. recipes/sizes.csv has what they gave: a
# first model within an hour, which a training with a larger max_steps resumes.
KNOBS: dict[str, tuple[tuple[Any, Any, Any], str]] = {
    "bpe_merges": (
        (2_000, 4_000, 8_000),
        "a subword must occur often to be learnt (Sennrich and Zhang 2019: 2,000, not 14,000)",
    ),
    "layers": ((2, 2, 4), "two up to 100,000 pairs, four for more"),
    "dropout": ((0.2, 0.2, 0.1), "less for more text"),
    "batch_tokens": ((1_024, 2_048, 4_096), "small updates for little text (Sennrich and Zhang 2019)"),
    "device_tokens": ((1_024, 2_048, 4_096), "what fits into memory at a time"),
    "max_steps": ((3_000, 3_000, 1_500), "a model within an hour; with a larger number, the training goes on"),
    "log_every": ((20, 50, 50), "divides save_every"),
}
ALWAYS: dict[str, tuple[Any, str]] = {
    "warmup": (400, "at least a tenth of the updates"),
    "lr_factor": (0.9, "with width and warmup: the rate of equation 3 has its peak at 0.004"),
    "save_every": (100, "divides max_steps"),
    "keep": (9, "as many as may be averaged"),
    "average": ("valid", "of the last nine checkpoints, as many as are best on valid"),
    "average_last": (9, "at most"),
}


@dataclass
class Look:
    """What the training text is like.

    pairs: their number; all else is of the first LOOK pairs. words, types: words and different words of each side.
    lengths: of the longer side of each pair, in subwords, estimated. marked, kept: pairs with placeholders, and those
    of them whose sides have the same. spaced: pairs with U+200B, which Khmer and Burmese have between words. different:
    the pairs, each once.
    """

    pairs: int = 0
    words: list[int] = field(default_factory=lambda: [0, 0])
    types: tuple[set[str], set[str]] = field(default_factory=lambda: (set(), set()))
    lengths: list[int] = field(default_factory=list)
    marked: int = 0
    kept: int = 0
    spaced: int = 0
    different: set[tuple[str, str]] = field(default_factory=set)

    @classmethod
    def read(cls, texts: Iterable[ParallelText]) -> Look:
        """A look at the texts of train."""
        look = cls()
        for pair in chain.from_iterable(text.pairs() for text in texts):
            look.pairs += 1
            if look.pairs <= LOOK:
                look.add(*pair)
        return look

    def add(self, source: str, target: str) -> None:
        """Count a pair."""
        self.different.add((source, target))
        for side, line in enumerate((source, target)):
            words = line.split()
            self.words[side] += len(words)
            self.types[side].update(words)
        self.lengths.append(max(map(subwords, (source, target))))
        self.spaced += "\u200b" in source + target
        if placeholders(source) or placeholders(target):
            self.marked += 1
            self.kept += not disagree(source, target)

    def length(self, share: float) -> int:
        """The length that so many of the pairs do not exceed."""
        return sorted(self.lengths)[min(len(self.lengths) - 1, int(share * len(self.lengths)))]

    def describe(self, languages: tuple[str, str]) -> str:
        """The counts, for people."""
        sides = (
            f"{language} {words:,} words, {len(types):,} different"
            for language, words, types in zip(languages, self.words, self.types, strict=True)
        )
        first = f" (of the first {LOOK:,})" if self.pairs > LOOK else ""
        several = sum(count > 1 for count in Counter(source for source, _ in self.different).values())
        different = f"{len(self.different):,} different, {several:,} sources with several targets"
        return (
            f"{self.pairs:,} training pairs, {different}{first}: {'; '.join(sides)}. Half of the lines have at most "
            f"about {self.length(0.5)} subwords, {SHARE:.1%} at most {self.length(SHARE)}. {self.marked:,} pairs have "
            f"placeholders, in {self.kept:,} both sides the same."
        )


def subwords(line: str) -> int:
    """About how many subwords a line has: one for each LETTERS letters, one for each word or Chinese character."""
    wide = sum(character >= "\u2e80" for character in line)
    return max(len(line.split()), (len(line) - wide) // LETTERS + wide)


def choice(look: Look) -> dict[str, tuple[Any, str]]:
    """Knobs to their values for a text, and why."""
    column = sum(look.pairs > size for size in SIZES)
    chosen = {name: (values[column], why) for name, (values, why) in KNOBS.items()} | ALWAYS
    most = next((length for length in LENGTHS if look.length(SHARE) <= length), LENGTHS[-1])
    chosen["max_length"] = most, f"{SHARE:.1%} of the lines have at most about {look.length(SHARE)} subwords"
    if 10 * look.spaced >= len(look.lengths):
        chosen["normalise"] = "none", f"{look.spaced:,} pairs have U+200B between words, which nfc would drop"
    marked = 100 * look.kept >= len(look.lengths)
    chosen["placeholders"] = marked, f"pairs with the same placeholders on both sides: {look.kept:,}"
    chosen["lowercase_source"] = not marked, "messages copy the case of their source: small letters cost 3 BLEU"
    return chosen


def recipe(toy: str, knobs: dict[str, tuple[Any, str]], head: str) -> str:
    """The text of a params.yaml: that of the recipe toy with other values, each with a line above it that says why.

    head: its first line.
    """
    lines = [head]
    for line in toy.split("\n")[1:]:
        name, _, rest = line.partition(": ")
        old, _, remark = rest.partition("#")
        value, why = knobs.get(name, (None, ""))
        knob = yaml_line(name, value)
        if value is None or knob == f"{name}: {old.strip()}":
            lines.append(line)
        else:
            lines += [f"# {why}"] * bool(why)
            lines.append(f"{knob:<25}  # (toy: {old.strip()}) {remark.strip()}")
    return "\n".join(lines)


def yaml_line(name: str, value: Any) -> str:
    """A line of YAML, which gives back this value, with quotes where it needs them."""
    yaml, stream = YAML(typ="safe", pure=True), StringIO()
    yaml.width, yaml.default_flow_style = sys.maxsize, False
    yaml.dump({name: value}, stream)
    return stream.getvalue().rstrip("\n")


def add_checksum(text: str) -> str:
    """A params.yaml whose first line ends with the beginning of a checksum of the others: an edit shows."""
    head, _, rest = text.partition("\n")
    return f"{head.removesuffix('.')}. {UNEDITED}{sha256_text(rest)[:8]}.\n{rest}"


def is_unedited(text: str) -> bool:
    """Whether a params.yaml is a recipe of this project, or was written here and has no edits."""
    head, mark, _ = text.partition("\n")[0].partition(f" {UNEDITED}")
    plain = f"{head}\n{text.partition(chr(10))[2]}"
    return bool(mark and add_checksum(plain) == text) or text in {
        path.read_text(encoding="utf-8") for path in (ROOT / "recipes").glob("*.yaml")
    }


def options_of_command() -> argparse.Namespace:
    """The command line. Raises Mistake for an output with edits that would be lost, and for wrong languages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+", type=Path, metavar="INPUT", help="your text: files, or a folder")
    parser.add_argument("--source", required=True, metavar="CODE", help="language code of the source side")
    parser.add_argument("--target", required=True, metavar="CODE", help="language code of the target side")
    parser.add_argument(
        "--columns", nargs=2, default=(), metavar=("SOURCE", "TARGET"), help="names or numbers in a table"
    )
    parser.add_argument("--separator", default="", metavar="MARK", help="between the columns of a .csv; tab: \\t")
    parser.add_argument("--name", metavar="NAME", help="of the folder in corpora/; default: that of the first file")
    parser.add_argument("--output", type=Path, default=Path("params.yaml"), metavar="PATH", help="default: params.yaml")
    parser.add_argument("--force", action="store_true", help="replace files that have edits")
    options = parser.parse_args()
    for language in (options.source, options.target):
        splitter_of(language)  # raises Mistake for what is no language code
    if options.name and not re.fullmatch(r"\w[\w.-]*", options.name):
        raise Mistake(f"--name {escape_controls(options.name)} has other characters than letters, digits, _, . and -.")
    options.separator = options.separator.replace("\\t", "\t")
    if len(options.separator) > 1:
        raise Mistake(f"--separator {options.separator!r} is not one character. Nothing was written.")
    if options.source == options.target:
        raise Mistake(f"source and target are both {options.source}. Nothing was written. Name two languages.")
    if options.output.exists() and not options.force and not is_unedited(options.output.read_text(encoding="utf-8")):
        raise Mistake(
            f"{options.output} has edits, which would be lost. Nothing was written. Use --force, or --output with "
            "another name."
        )
    return options


def corpus_of(options: argparse.Namespace) -> tuple[Path, str]:
    """The corpus folder of what the command line names, which is written unless it is there; what was taken from where.

    Prints what was done.
    """
    languages = options.source, options.target
    texts = texts_of(options.inputs, languages, options.columns, options.separator)
    if (
        options.inputs[0].is_dir()
        and all(texts.values())
        and not any(isinstance(text, Table) for text in chain(*texts.values()))
    ):
        for split in ("valid", "test"):
            print(f"{sum(1 for text in texts[split] for _ in text.pairs()):,} {split} pairs")
        return options.inputs[0], ""
    folder = Path("corpora") / (options.name or name_of(options.inputs[0]))
    print(write_corpus(folder, texts, languages, options.force))
    return folder, "".join(describe_source(part, languages) + "\n" for part in chain(*texts.values()))


def describe_start(params: Params) -> str:
    """Why a training by these params cannot start from the model that they name; "" if it can."""
    if (folder := starting_model(params.init_from)) is None:
        return ""
    model = read_model_json(folder / "model.json")
    has = model | model["sizes"]
    sizes = ("d_model", "d_ff", "heads", "layers", "placeholders")
    wrong = [
        f"{name}={has[name]}, not {getattr(params, name)}" for name in sizes if has.get(name) != getattr(params, name)
    ]
    if not {params.source, params.target} & {model["source"], model["target"]}:
        wrong.append(f"{model['source']} and {model['target']}, neither of your languages")
    return f"init_from={params.init_from} does not fit: it has {', '.join(wrong)}. Set {START}.\n" * bool(wrong)


def main() -> None:
    options = options_of_command()
    languages = options.source, options.target
    old = read_values(options.output) if options.output.exists() else {}
    folder, sources = corpus_of(options)
    train = user_splits(folder, ("train", "valid", "test"), *languages)["train"]
    look = Look.read(train)
    if not look.pairs:
        raise Mistake(f"{folder} has no pairs in train. The train set needs at least one pair of lines.")
    knobs = choice(look)
    own = {"corpus": str(folder), "source": options.source, "target": options.target}
    own |= {"init_from": old["init_from"]} if "init_from" in old else {}
    size = f"{look.pairs:,} pairs"
    head = f"# Your text in {escape_controls(str(folder))}, {size}, by `python -m pipeline recipe`. Run it: dvc exp run"
    toy = (ROOT / "recipes/toy.yaml").read_text(encoding="utf-8")
    text = recipe(toy, {name: (value, "") for name, value in own.items()} | knobs, head)
    start = describe_start(Params.parse(text, options.output))
    write_text(options.output, add_checksum(text))
    print(
        *(f"  {name}: {str(value).lower()}  {why}" for name, (value, why) in knobs.items() if f"# {why}\n" in text),
        sep="\n",
    )
    if look.pairs < FEW_PAIRS:
        print(
            f"{size} are too few, fewer than {FEW_PAIRS:,}: the model learns them by heart and translates little else. "
            f"Add text, or set {START}."
        )
    print(start, end="")
    print(expectation(ROOT / "recipes", look.pairs))
    print(f"{options.output} was written. Type `dvc repro inspect` to look at the text, `dvc exp run` to train.")
    commit = commit_command(folder, options.output)
    print(f"Commit both, for the way back to this recipe and for queued experiments: {commit}")
    print(
        sources + look.describe(languages),
        *other_languages(chain(*(text.pairs() for text in train)), languages),
        sep="\n",
    )
