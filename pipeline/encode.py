"""Stage encode: turn text into arrays of subword ids, which training memory-maps.

Reads   data/tokens, data/bpe.codes, data/vocab.txt, data/filtered/train.lines.npy, data/raw/{valid.*,train.files.json}
Writes  data/ids: for train and valid, for each side the ids, each sequence with </s> at its end, and the offset of
        each; the line numbers of the pairs in data/raw; train.files.json; valid.{source,target}.txt, the real lines
        with the numbers of placeholders, against which training scores its translations; corpus.json.
        data/subwords.json: subwords per word, the rate of <unk>, and the share of the vocabulary that occurs; for the
        page about the corpus
Params  max_length: training pairs with an empty side, or a side of more subwords, are dropped and counted. variants:
        the share of training pairs that are replaced by one without its final mark, or with two letters swapped
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from functools import partial
from itertools import starmap
from pathlib import Path

import numpy as np

from pipeline.workflow.params import Params
from pipeline.workflow.stage import arguments, bar, require, run
from transformer.files import (
    Mistake,
    Untrainable,
    copy_file,
    read_json,
    read_lines,
    whole_folder,
    write_json,
    write_lines,
)
from transformer.text.blocks import blocks, map_in_order
from transformer.text.encoding import Encoder, SubwordCounts
from transformer.text.pairs import Pairs
from transformer.text.placeholders import protect_pair
from transformer.text.vocabulary import Vocabulary

MOST_UNKNOWN = 0.05  # share of <unk> in the subwords of a side, above which encode prints a remark


def main() -> None:
    paths = arguments(
        __doc__,
        tokens="data/tokens",
        codes="data/bpe.codes",
        vocab="data/vocab.txt",
        raw="data/raw",
        filtered="data/filtered",
        ids="data/ids",
        subwords="data/subwords.json",
    )
    params = Params.load(paths.params)
    require(
        paths.tokens,
        paths.codes,
        paths.vocab,
        paths.filtered / "train.lines.npy",
        paths.raw / "train.files.json",
        paths.raw / "valid.src",
        paths.raw / "valid.tgt",
    )
    with whole_folder(paths.ids) as folder:
        counts = {split: write_ids(paths, split, params, folder) for split in ("train", "valid")}
        kept = {split: count.kept for split, count in counts.items()}
        dropped = counts["train"].pairs - kept["train"]
        check(kept, paths.tokens, params.max_length, paths.params)
        copy_file(paths.raw / "train.files.json", folder / "train.files.json")
        corpus = read_json(paths.tokens / "text.json")
        valid = zip(*(read_lines(paths.raw / f"valid.{side}") for side in ("src", "tgt")), strict=True)
        pairs = starmap(protect_pair, valid) if corpus["placeholders"] else valid
        for name, lines in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
            write_lines(folder / f"valid.{name}.txt", lines)
        corpus |= {"max_length": params.max_length, "train_pairs": kept["train"], "dropped_pairs": dropped}
        write_json(folder / "corpus.json", corpus)
    summaries = {split: count.summary() for split, count in counts.items()}
    write_json(paths.subwords, summaries)
    say_unknown(summaries["train"], paths.vocab)
    print(f"{kept['train']:,} training pairs; {dropped:,} dropped (empty, or longer than {params.max_length} subwords)")


def write_ids(paths: Namespace, split: str, params: Params, folder: Path) -> SubwordCounts:
    """Write the ids of a split. Returns its counts. Pairs of train that are empty or too long are left out."""
    size = len(Vocabulary.load(paths.vocab))
    counts = SubwordCounts(size)
    lines = np.load(paths.filtered / "train.lines.npy", mmap_mode="r") if split == "train" else None
    options = {"max_length": params.max_length, "variants": params.variants} if split == "train" else {}
    make = partial(Encoder, paths.codes, paths.vocab, **options)
    with bar(0, "pair", f"encode {split}") as progress:

        def pair_blocks():
            for block in map_in_order(make, blocks(*(paths.tokens / f"{split}.{side}" for side in ("src", "tgt")))):
                counts.add(block)
                progress.update(block.pairs)
                yield block.pair_block(lines)

        Pairs.save(folder, split, pair_blocks(), size)
    return counts


def say_unknown(summaries: Mapping[str, Mapping[str, float]], vocab: Path) -> None:
    """Print a line for each side of train of which more than MOST_UNKNOWN is not in the vocabulary."""
    for side, summary in summaries.items():
        if summary["unknown_rate"] > MOST_UNKNOWN:
            print(
                f"{summary['unknown_rate']:.1%} of the {side} subwords of train are not in {vocab}, so the model "
                "cannot learn them. Take the vocabulary from this text (init_from=recipes/random), or lower min_count."
            )


def check(counts: dict[str, int], tokens: Path, max_length: int, params: Path) -> None:
    """Raise Mistake for a split of which no pair is left, Untrainable for train. counts: split -> pairs."""
    for split, count in counts.items():
        if not count and split == "train":
            raise Untrainable(
                f"{tokens}: no train pair is left. All have an empty side, or more than max_length={max_length} "
                f"subwords. Raise max_length in {params}."
            )
        if not count:
            raise Mistake(f"{tokens}: no {split} pair is left. The files are empty.")


if __name__ == "__main__":
    run(main)
