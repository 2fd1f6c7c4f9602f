"""Stage tokenise: split lines into words, without loss, and count those of train (transformer/text/words.py).

Reads   data/filtered/train.{src,tgt}, data/raw/valid.{src,tgt}
Writes  data/tokens/{train,valid}.{src,tgt}: words separated by one space; counts.txt: the words of train, each with how
        often it occurs on both sides; source_counts.txt: the same for the source side; words.txt: the words of the
        source side (text/word_counts.py); text.json: languages, normal form, placeholders, case and how words are
        split. Test sets are split by the stage translate
Params  source, target, normalise, placeholders, lowercase, lowercase_source
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.workflow.params import Params
from pipeline.workflow.stage import arguments, bar, require, run
from transformer.cores import workers
from transformer.files import whole_folder, write_json, write_lines
from transformer.text.blocks import Block, blocks, map_in_order
from transformer.text.word_counts import ends_of_words, known_words
from transformer.text.words import PIECES_IN_MEMORY, Side, splitter_of

SIDES = ("src", "tgt")
SideTokens = tuple[str, Counter[str], Counter[str]]  # the lines, how often each token occurs, and each of ends_of_words


class Tokeniser:
    """The function of a worker process: a block of pairs to the tokens of each side, counted for train."""

    def __init__(self, text: dict[str, Any]):
        self.sides = Side.read_both(text)
        for side in self.sides:
            side.most_pieces = 2 * PIECES_IN_MEMORY // workers()

    def __call__(self, work: tuple[str, Block]) -> tuple[str, list[SideTokens]]:
        split, block = work
        texts = zip(*map(self.sides[0].protect_pair, *block.lines()), strict=True)
        return split, [self.side_tokens(side, lines, split) for side, lines in zip(self.sides, texts, strict=True)]

    def side_tokens(self, side: Side, lines: Iterable[str], split: str) -> SideTokens:
        """The tokens of the lines of a side, counted if it is train; what ends the lines of the source side only."""
        tokens = [side.split(line) for line in lines]
        counted = tokens if split == "train" else []
        counts = Counter(token for line in counted for token in line)
        ends = Counter(end for line in counted if side is self.sides[0] for end in ends_of_words(line))
        return "".join(f"{' '.join(line)}\n" for line in tokens), counts, ends


def main() -> None:
    paths = arguments(__doc__, raw="data/raw", filtered="data/filtered", tokens="data/tokens")
    params = Params.load(paths.params)
    files = {
        split: [folder / f"{split}.{suffix}" for suffix in SIDES]
        for split, folder in (("train", paths.filtered), ("valid", paths.raw))
    }
    require(*(path for both in files.values() for path in both))
    work = ((split, block) for split, both in files.items() for block in blocks(*both))
    with whole_folder(paths.tokens) as folder:
        text = description(params)
        counts: dict[str, Counter[str]] = {suffix: Counter() for suffix in SIDES}
        ends: Counter[str] = Counter()
        with bar(0, "block", "tokenise") as progress:
            for split, sides in map_in_order(partial(Tokeniser, text), work):
                for suffix, (lines, words, at_ends) in zip(SIDES, sides, strict=True):
                    with open(folder / f"{split}.{suffix}", "a", encoding="utf-8", newline="\n") as file:
                        file.write(lines)
                    counts[suffix].update(words)
                    ends.update(at_ends)
                progress.update()
        write_counts(folder / "source_counts.txt", counts["src"])
        write_counts(folder / "counts.txt", counts["src"] + counts["tgt"])
        write_counts(folder / "words.txt", known_words(counts["src"], ends))
        write_json(folder / "text.json", text)


def write_counts(path: Path, counts: Counter[str]) -> None:
    """Write tokens and their numbers, in the order of the tokens."""
    write_lines(path, (f"{token} {count}" for token, count in sorted(counts.items())))


def description(params: Params) -> dict[str, Any]:
    """The contents of text.json. Prints a line for a language that spaCy does not split."""
    text: dict[str, Any] = {
        "source": params.source,
        "target": params.target,
        "normalise": params.normalise,
        "placeholders": params.placeholders,
        "lowercase": params.lowercase,
        "lowercase_source": params.lowercase or params.lowercase_source,
    }
    for side in ("source", "target"):
        splitter, remark = splitter_of(text[side])
        if remark:
            text[f"{side}_splitter"] = splitter
            print(remark)
    return text


if __name__ == "__main__":
    run(main)
