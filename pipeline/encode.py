"""Stage encode: turn text into arrays of subword ids, which training memory-maps.

Reads   data/tokens, data/bpe.codes, data/vocab.txt, data/raw/valid.{src,tgt}
Writes  data/ids: for train and valid, for each side the ids, each sequence with </s> at its end, and the offset of
        each; the line numbers of the pairs in data/raw; valid.{source,target}.txt, the real lines, against which
        training scores its translations; corpus.json
Params  max_length: training pairs with an empty side, or a side of more subwords, are dropped and counted
"""

import json
from collections.abc import Iterator
from pathlib import Path

from pipeline.shared.params import Params
from pipeline.shared.stage import arguments, require, run
from transformer.files import copy_file, read_lines, whole_folder, write_json
from transformer.text.bpe import Merges
from transformer.text.pairs import IdPair, Pairs
from transformer.text.vocabulary import Vocabulary


def main() -> None:
    paths = arguments(
        __doc__, tokens="data/tokens", codes="data/bpe.codes", vocab="data/vocab.txt", raw="data/raw", ids="data/ids"
    )
    params = Params.load(paths.params)
    require(paths.tokens, paths.codes, paths.vocab, paths.raw / "valid.src", paths.raw / "valid.tgt")
    merges, vocabulary = Merges.load(paths.codes), Vocabulary.load(paths.vocab)
    dropped = 0

    def rows(split: str) -> Iterator[IdPair]:
        """The pairs of a split, one after another; those of train that fit."""
        nonlocal dropped
        files = [read_lines(paths.tokens / f"{split}.{side}") for side in ("src", "tgt")]
        for number, lines in enumerate(zip(*files, strict=True), start=1):
            source, target = (vocabulary.ids(merges.subwords(line.split(" ") if line else [])) for line in lines)
            if split == "train" and not all(1 <= len(side) <= params.max_length for side in (source, target)):
                dropped += 1
            else:
                yield source, target, number

    with whole_folder(paths.ids) as folder:
        counts = {split: Pairs.save(folder, split, rows(split)) for split in ("train", "valid")}
        check(counts, paths.tokens, params.max_length, paths.params)
        for side, name in (("src", "source"), ("tgt", "target")):
            copy_file(paths.raw / f"valid.{side}", folder / f"valid.{name}.txt")
        corpus = json.loads((paths.tokens / "text.json").read_text(encoding="utf-8"))
        corpus |= {"max_length": params.max_length, "train_pairs": counts["train"], "dropped_pairs": dropped}
        write_json(folder / "corpus.json", corpus)
    print(
        f"{counts['train']:,} training pairs; {dropped:,} dropped (empty, or longer than {params.max_length} subwords)"
    )


def check(counts: dict[str, int], tokens: Path, max_length: int, params: Path) -> None:
    """Raise ValueError for a split of which no pair is left. counts: split -> pairs."""
    for split, count in counts.items():
        if not count:
            raise ValueError(
                f"{tokens}: no {split} pair is left. "
                + (
                    f"All have an empty side, or more than max_length={max_length} subwords. Raise max_length in "
                    f"{params}."
                    if split == "train"
                    else "The files are empty."
                )
            )


if __name__ == "__main__":
    run(main)
