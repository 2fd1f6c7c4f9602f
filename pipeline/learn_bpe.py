"""Stage learn_bpe: learn joint byte-pair merges from both sides of the training text, by subword-nmt.

Reads   data/tokens/counts.txt: the words of both sides of train, with their numbers
Writes  data/bpe.codes: the merges; none with bpe_merges 0, which leaves words whole
Params  bpe_merges; init_from: training starts from this model, and its merges are copied
"""

from pipeline.workflow.params import Params
from pipeline.workflow.stage import arguments, require, run
from transformer.files import copy_file, write_text
from transformer.model_folder import starting_model
from transformer.text.bpe import learn_merges
from transformer.text.word_counts import read_counts


def main() -> None:
    paths = arguments(__doc__, tokens="data/tokens", codes="data/bpe.codes")
    params = Params.load(paths.params)
    require(paths.tokens)
    if (folder := starting_model(params.init_from)) is not None:
        copy_file(folder / "bpe.codes", paths.codes)
        print(f"merges taken over from {folder}")
        return
    codes = learn_merges(read_counts(paths.tokens / "counts.txt"), params.bpe_merges)
    write_text(paths.codes, codes)
    count = codes.count("\n") - 1
    fewer = f" of {params.bpe_merges:,}: no other pair of subwords occurs twice" if count < params.bpe_merges else ""
    print(f"{count:,} merges{fewer}")


if __name__ == "__main__":
    run(main)
