"""Stage encode: turn text into arrays of subword ids, which training memory-maps.

Reads   data/tokens, data/bpe.codes, data/vocab.txt
Writes  data/ids: for each split and side the ids, each sequence with </s> at its end, and the offset of each; for each
        split the line numbers of its pairs in data/raw; corpus.json
Params  max_length: training pairs with an empty side, or a side of more subwords, are dropped and counted
"""

import json
from pathlib import Path

from pipeline.shared.params import Params
from pipeline.shared.stage import arguments, require, run
from transformer.files import read_lines, whole_folder, write_json
from transformer.text.bpe import Merges
from transformer.text.pairs import Pairs
from transformer.text.vocabulary import Vocabulary


def main() -> None:
    paths = arguments(__doc__, tokens="data/tokens", codes="data/bpe.codes", vocab="data/vocab.txt", ids="data/ids")
    params = Params.load(paths.params)
    require(paths.tokens, paths.codes, paths.vocab)
    merges, vocabulary = Merges.load(paths.codes), Vocabulary.load(paths.vocab)

    def ids(path: Path) -> list[list[int]]:
        return [vocabulary.ids(merges.subwords(line.split(" ") if line else [])) for line in read_lines(path)]

    with whole_folder(paths.ids) as folder:
        for split in ("train", "valid", "test"):
            pairs = list(zip(*(ids(paths.tokens / f"{split}.{side}") for side in ("src", "tgt")), strict=True))
            lines = list(range(1, len(pairs) + 1))
            if split == "train":
                lines = [line for line in lines if all(1 <= len(side) <= params.max_length for side in pairs[line - 1])]
                kept, dropped = len(lines), len(pairs) - len(lines)
                pairs = [pairs[line - 1] for line in lines]
            Pairs.save(folder, split, pairs, lines)
            if not pairs:
                raise ValueError(
                    f"{paths.tokens}: no {split} pair is left: all have an empty side or more than "
                    f"max_length={params.max_length} subwords; raise max_length in {paths.params}"
                )
        corpus = json.loads((paths.tokens / "text.json").read_text(encoding="utf-8"))
        corpus |= {"max_length": params.max_length, "train_pairs": kept, "dropped_pairs": dropped}
        write_json(folder / "corpus.json", corpus)
    print(f"{kept:,} training pairs; {dropped:,} dropped (empty, or longer than {params.max_length} subwords)")


if __name__ == "__main__":
    run(main)
