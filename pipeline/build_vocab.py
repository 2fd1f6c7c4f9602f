"""Stage build_vocab: count the subwords of both sides of the training text, and build the vocabulary by torchtext.

Reads   data/tokens/counts.txt: the words of both sides of train, with their numbers; data/bpe.codes
Writes  data/vocab.txt: one subword per line, ordered by id
Params  min_count, placeholders; init_from: training starts from this model, and its vocabulary is copied
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

from pipeline.workflow.params import Params
from pipeline.workflow.stage import arguments, require, run
from transformer.files import Mistake, chunks, copy_file
from transformer.model_folder import read_model_json, starting_model
from transformer.text.blocks import map_in_order
from transformer.text.bpe import Merges
from transformer.text.marks import SPACE
from transformer.text.placeholders import NUMBERS
from transformer.text.vocabulary import Vocabulary
from transformer.text.word_counts import read_counts

WORDS_AT_ONCE = 20_000  # for one process


class SubwordCounter:
    """The function of a worker process: words with their numbers to the numbers of their subwords."""

    def __init__(self, codes: Path):
        self.merges = Merges.load(codes)

    def __call__(self, words: list[tuple[str, int]]) -> Counter[str]:
        counts: Counter[str] = Counter()
        for word, count in words:
            for subword in self.merges.subwords([word]):
                counts[subword] += count
        return counts


def main() -> None:
    paths = arguments(__doc__, tokens="data/tokens", codes="data/bpe.codes", vocab="data/vocab.txt")
    params = Params.load(paths.params)
    words = paths.tokens / "counts.txt"
    require(words, paths.codes)
    if (folder := starting_model(params.init_from)) is not None:
        numbered = read_model_json(folder / "model.json").get("placeholders", False)
        if numbered != params.placeholders:
            raise Mistake(f"{folder} was trained with placeholders={str(numbered).lower()}. Set it here too.")
        copy_file(folder / "vocab.txt", paths.vocab)
        print(f"vocabulary taken over from {folder}")
        return
    counts: Counter[str] = Counter()
    parts = chunks(read_counts(words).items(), WORDS_AT_ONCE)
    for part_counts in map_in_order(partial(SubwordCounter, paths.codes), parts):
        counts.update(part_counts)
    if params.placeholders:
        counts |= dict.fromkeys((SPACE, *NUMBERS), params.min_count)  # so that none of them is missing
    vocabulary = Vocabulary.build(counts, params.min_count)
    vocabulary.save(paths.vocab)
    print(f"{len(vocabulary):,} subwords")


if __name__ == "__main__":
    run(main)
