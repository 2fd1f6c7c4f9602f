"""Stage average: one model folder that stands alone, from the checkpoints of a training.

Reads   data/checkpoints, data/bpe.codes, data/vocab.txt
Writes  data/model: weights.safetensors, model.json, bpe.codes, vocab.txt
Params  average (last: mean of the last average_last checkpoints; best: the one with the lowest validation loss),
        average_last
"""

import json
import shutil

from pipeline.stage import arguments, require, run
from transformer.checkpoint import mean_weights, save_weights
from transformer.files import whole_folder
from transformer.params import Params


def main() -> None:
    paths = arguments(
        __doc__, checkpoints="data/checkpoints", codes="data/bpe.codes", vocab="data/vocab.txt", model="data/model"
    )
    params = Params.load(paths.params)
    require(paths.checkpoints, paths.codes, paths.vocab)
    record = json.loads((paths.checkpoints / "checkpoints.json").read_text(encoding="utf-8"))
    steps = sorted(int(step) for step in record["valid_loss"])[-params.average_last :]
    if params.average == "best":
        steps = [record["best"]]
    weights = mean_weights([paths.checkpoints / f"{step:08d}.safetensors" for step in steps])
    with whole_folder(paths.model) as folder:
        save_weights(weights, folder / "weights.safetensors")
        shutil.copyfile(paths.checkpoints / "model.json", folder / "model.json")
        shutil.copyfile(paths.codes, folder / "bpe.codes")
        shutil.copyfile(paths.vocab, folder / "vocab.txt")
    print("mean of the checkpoints after update", ", ".join(map(str, steps)))


if __name__ == "__main__":
    run(main)
