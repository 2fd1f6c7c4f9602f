"""Stage build_vocab: count the subwords of both sides of the training text, by torchtext.

Reads   data/tokens/train.{src,tgt}, data/bpe.codes
Writes  data/vocab.txt: one subword per line, ordered by id
Params  min_count; init_from: training starts from this model, and its vocabulary is copied
"""

from itertools import chain

from pipeline.shared.params import Params
from pipeline.shared.stage import arguments, require, run
from transformer.files import copy_file, read_lines
from transformer.model_folder import starting_model
from transformer.text.bpe import Merges
from transformer.text.vocabulary import Vocabulary


def main() -> None:
    paths = arguments(__doc__, tokens="data/tokens", codes="data/bpe.codes", vocab="data/vocab.txt")
    params = Params.load(paths.params)
    require(paths.tokens, paths.codes)
    merges = Merges.load(paths.codes)
    if (folder := starting_model(params.init_from)) is not None:
        copy_file(folder / "vocab.txt", paths.vocab)
        print(f"vocabulary taken over from {folder}")
        return
    lines = chain.from_iterable(read_lines(paths.tokens / f"train.{suffix}") for suffix in ("src", "tgt"))
    vocabulary = Vocabulary.count((merges.subwords(line.split(" ")) for line in lines if line), params.min_count)
    vocabulary.save(paths.vocab)
    print(f"{len(vocabulary):,} subwords")


if __name__ == "__main__":
    run(main)
