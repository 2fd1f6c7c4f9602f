"""Stage average: average checkpoints of a training into one self-contained model folder, for torch and CTranslate2.

Reads   data/checkpoints, data/ids (valid), data/bpe.codes, data/vocab.txt, data/tokens/words.txt
Writes  data/averaged: weights.safetensors, model.json, bpe.codes, vocab.txt, words.txt, the export for CTranslate2;
        reports/average.json: the number of averaged checkpoints, and the validation losses of the model and of the last
        checkpoint alone
Params  average_last, average (last: mean of the last average_last checkpoints; best: mean of the average_last
        checkpoints with the best validation score; valid: mean of the last n checkpoints, where n, at most
        average_last, is the number with the lowest validation loss)
"""

import shutil

from torch import Tensor

from pipeline.workflow.params import Params
from pipeline.workflow.stage import arguments, require, run
from transformer.decoding.forced_decoding import score_ids
from transformer.files import read_json, whole_folder, write_json
from transformer.inference.ctranslate2_export import add_export
from transformer.model.averaging import mean_weights, running_means
from transformer.model.transformer import Transformer
from transformer.model.weights import read_weights, save_weights, stored_config
from transformer.model_folder import WORDS
from transformer.text.pairs import Pairs
from transformer.training.checkpoints import best_steps


def main() -> None:
    paths = arguments(
        __doc__,
        checkpoints="data/checkpoints",
        ids="data/ids",
        codes="data/bpe.codes",
        vocab="data/vocab.txt",
        words="data/tokens/words.txt",
        model="data/averaged",
        losses="reports/average.json",
    )
    params = Params.load(paths.params)
    require(paths.checkpoints, paths.ids, paths.codes, paths.vocab, paths.words)
    scores = read_json(paths.checkpoints / "checkpoints.json")["scores"]
    files = [paths.checkpoints / name for name in choose(scores, params.average, params.average_last)]
    last = paths.checkpoints / choose(scores, "last", 1)[0]
    require(*files, last)
    valid, model = Pairs.load(paths.ids, "valid"), Transformer(stored_config(paths.checkpoints)).eval()
    if params.average == "valid":
        losses = [valid_loss(model, weights, valid) for weights in running_means(files[::-1])]
        files = files[-1 - losses.index(min(losses)) :]
    weights = mean_weights(files)
    loss, last_loss = valid_loss(model, weights, valid), valid_loss(model, read_weights(last), valid)
    with whole_folder(paths.model) as folder:
        save_weights(weights, folder / "weights.safetensors")
        shutil.copyfile(paths.checkpoints / "model.json", folder / "model.json")
        shutil.copyfile(paths.codes, folder / "bpe.codes")
        shutil.copyfile(paths.vocab, folder / "vocab.txt")
        shutil.copyfile(paths.words, folder / WORDS)
        add_export(folder, folder, "float32")
    write_json(
        paths.losses, {"averaged": len(files), "averaged_valid_loss": loss, "last_checkpoint_valid_loss": last_loss}
    )
    print(f"The model is the mean of updates {', '.join(str(int(file.stem)) for file in sorted(files))}.")
    print(f"Its validation loss is {loss:.4f} nats per subword, that of the last checkpoint alone {last_loss:.4f}.")
    if loss > last_loss:
        print("Averaging makes this model worse. Set average=valid.")


def choose(scores: dict[str, list[float]], average: str, average_last: int) -> list[str]:
    """The names of the checkpoints to average, for valid those to choose from.

    scores: step of each checkpoint -> its validation score, see TrainingState.checkpoints. average, average_last: the
    params.
    """
    steps = best_steps(scores)[:average_last] if average == "best" else sorted(map(int, scores))[-average_last:]
    return [f"{step:08d}.safetensors" for step in steps]


def valid_loss(model: Transformer, weights: dict[str, Tensor], valid: Pairs) -> float:
    """The loss of a model with these weights, in nats per target subword, without smoothing; rounded to 6 digits."""
    model.to(next(iter(weights.values())).dtype).load_state_dict(weights)
    sources, targets, _ = zip(*valid.rows(), strict=True)
    scores = score_ids([model], sources, targets, never=())
    return round(-sum(map(sum, scores)) / sum(map(len, scores)), 6)


if __name__ == "__main__":
    run(main)
