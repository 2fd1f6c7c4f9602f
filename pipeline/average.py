"""Stage average: one model folder that stands alone, from the checkpoints of a training.

Reads   data/checkpoints, data/bpe.codes, data/vocab.txt
Writes  data/model: weights.safetensors, model.json, bpe.codes, vocab.txt
Params  average (last: mean of the last average_last checkpoints; best: of those that validated best; ema: the moving
        average that the training kept), average_last
"""

import json
import shutil

from pipeline.shared.params import Params
from pipeline.shared.stage import arguments, require, run
from transformer.files import whole_folder
from transformer.model.averaging import mean_weights
from transformer.model.weights import save_weights
from transformer.training.checkpoints import best_steps


def main() -> None:
    paths = arguments(
        __doc__, checkpoints="data/checkpoints", codes="data/bpe.codes", vocab="data/vocab.txt", model="data/model"
    )
    params = Params.load(paths.params)
    require(paths.checkpoints, paths.codes, paths.vocab)
    record = json.loads((paths.checkpoints / "checkpoints.json").read_text(encoding="utf-8"))
    names, told = choose(record["worth"], params.average, params.average_last)
    require(*(paths.checkpoints / name for name in names))
    weights = mean_weights([paths.checkpoints / name for name in names])
    with whole_folder(paths.model) as folder:
        save_weights(weights, folder / "weights.safetensors")
        shutil.copyfile(paths.checkpoints / "model.json", folder / "model.json")
        shutil.copyfile(paths.codes, folder / "bpe.codes")
        shutil.copyfile(paths.vocab, folder / "vocab.txt")
    print(told)


def choose(worth: dict[str, float], average: str, average_last: int) -> tuple[list[str], str]:
    """The files to average, of checkpoints that are worth {step: validation, less is better}, and what to say of it."""
    if average == "ema":
        return ["average.safetensors"], "moving average of the weights"
    steps = best_steps(worth)[:average_last] if average == "best" else sorted(map(int, worth))[-average_last:]
    told = f"mean of the {average} checkpoints, after update {', '.join(map(str, sorted(steps)))}"
    return [f"{step:08d}.safetensors" for step in steps], told


if __name__ == "__main__":
    run(main)
