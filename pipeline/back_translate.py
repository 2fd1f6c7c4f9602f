"""Stage back_translate: pair the training targets with a model's translations of them, for more training pairs.

The model goes from target to source and is trained here, on data/ids turned around. What people wrote stays on the
target side (Sennrich et al. 2016, "Improving Neural Machine Translation Models with Monolingual Data"; of the training
text itself, as here: Nguyen et al. 2020, "Data Diversification").

Reads   data/ids, data/raw/train.tgt, data/bpe.codes, data/vocab.txt; work/train-<key>/, the state it resumes from
Writes  data/back: back.json, how many were translated; train.src, the translations; the training pairs, first as in
        data/ids, then with translated sources. For back_translation_steps: 0 back.json alone
Params  back_translation_steps: updates of that model, the mean of the checkpoints kept from their last third; what
        training.py names: as for the stage train
"""

import json

from pipeline.stage import arguments, require, run
from transformer.batching import Pairs
from transformer.files import whole_folder, write_lines
from transformer.params import Params


def main() -> None:
    paths = arguments(
        __doc__, ids="data/ids", raw="data/raw", codes="data/bpe.codes", vocab="data/vocab.txt", back="data/back",
        nproc_per_node="1",
    )  # fmt: skip
    params = Params.load(paths.params)
    require(paths.ids, paths.raw, paths.codes, paths.vocab)
    found, pairs, lines = [], [], []
    if params.back_translation_steps:
        from pipeline.back_translation import back_translate  # here, since torch takes seconds and most runs want none

        found, pairs, lines = back_translate(paths, params)
    with whole_folder(paths.back) as folder:
        if found:
            write_lines(folder / "train.src", found)
            Pairs.save(folder, "train", pairs, lines)
        count = len(pairs) - len(found)
        (folder / "back.json").write_text(json.dumps({"translated_pairs": count}) + "\n", encoding="utf-8")
    print(f"{count:,} training pairs more by back-translation")


if __name__ == "__main__":
    run(main)
