"""Stage average: average checkpoints of a training into one self-contained model folder.

Reads   data/checkpoints, data/bpe.codes, data/vocab.txt
Writes  data/model: weights.safetensors, model.json, bpe.codes, vocab.txt
Params  average_last, average (last: mean of the last average_last checkpoints; best: mean of the average_last
        checkpoints with the best validation score; ema: the moving average of the weights during the training)
"""

import json
import shutil

from pipeline.params import Params
from pipeline.stage import arguments, require, run
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
    names, message = choose(record["scores"], params.average, params.average_last)
    require(*(paths.checkpoints / name for name in names))
    weights = mean_weights([paths.checkpoints / name for name in names])
    with whole_folder(paths.model) as folder:
        save_weights(weights, folder / "weights.safetensors")
        shutil.copyfile(paths.checkpoints / "model.json", folder / "model.json")
        shutil.copyfile(paths.codes, folder / "bpe.codes")
        shutil.copyfile(paths.vocab, folder / "vocab.txt")
    print(message)


def choose(scores: dict[str, list[float]], average: str, average_last: int) -> tuple[list[str], str]:
    """The names of the files to average, and the message to print.

    scores: step of each checkpoint -> its validation score, see TrainingState.checkpoints. average, average_last: the
    params.
    """
    if average == "ema":
        return ["ema.safetensors"], "The model is the moving average of the weights."
    steps = best_steps(scores)[:average_last] if average == "best" else sorted(map(int, scores))[-average_last:]
    message = f"The model is the mean of the {average} checkpoints: updates {', '.join(map(str, sorted(steps)))}."
    return [f"{step:08d}.safetensors" for step in steps], message


if __name__ == "__main__":
    run(main)
