"""Stage learn_bpe: learn joint byte-pair merges by subword-nmt, from the training text of both sides.

Reads   data/tokens/train.{src,tgt}
Writes  data/bpe.codes (no merges in it for bpe_merges 0: words stay whole)
Params  bpe_merges; init_from: the merges of a model to go on from are taken over
"""

from itertools import chain

from pipeline.shared.params import Params
from pipeline.shared.stage import arguments, require, run
from transformer.files import copy_file, read_lines
from transformer.model_folder import starting_model
from transformer.text.bpe import learn_merges, save_merges


def main() -> None:
    paths = arguments(__doc__, tokens="data/tokens", codes="data/bpe.codes")
    params = Params.load(paths.params)
    require(paths.tokens)
    if (folder := starting_model(params.init_from)) is not None:
        copy_file(folder / "bpe.codes", paths.codes)
        print(f"taken over from {folder}")
        return
    lines = chain.from_iterable(read_lines(paths.tokens / f"train.{suffix}") for suffix in ("src", "tgt"))
    codes = learn_merges(lines, params.bpe_merges)
    save_merges(codes, paths.codes)
    print(f"{codes.count(chr(10)) - 1:,} merges")


if __name__ == "__main__":
    run(main)
