"""Stage back_translate: translate the training targets back into the source language, for more training pairs.

The model for it translates from target to source. It is trained here, on data/ids with source and target swapped. The
added pairs have a translated source and a real target (Sennrich et al. 2016, "Improving Neural Machine Translation
Models with Monolingual Data"; on the training text itself, as here: Nguyen et al. 2020, "Data Diversification").

Reads   data/ids, data/raw/train.tgt, data/bpe.codes, data/vocab.txt; work/train-<key>/ (the state to resume from)
Writes  data/back: back.json (the number of translated pairs, and the train_key of the model); train.src (the
        translations); the training pairs: first those of data/ids, then those with translated sources. With
        back_translation_steps 0: only back.json. work/runs/back-<key>/ (the curve of the model, for the run of train)
Params  back_translation_steps (the number of updates of the model; its checkpoints of the last third are averaged) and
        the knobs of pipeline/training/job.py
"""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import TYPE_CHECKING, NamedTuple

from pipeline.shared.params import Params
from pipeline.shared.stage import arguments, bar, project_root, require, run
from transformer.files import read_lines, whole_folder, write_json, write_lines
from transformer.text.bpe import Merges
from transformer.text.pairs import Pair, Pairs
from transformer.text.words import Side

if TYPE_CHECKING:
    from torch import Tensor

    from pipeline.training.job import Training
    from transformer.model.transformer import Transformer
    from transformer.training.checkpoints import CheckpointStore, TrainingState


class BackTranslation(NamedTuple):
    """The translations of all training targets, and the training pairs with them.

    train_key: of the model. pairs: those of data/ids, then those with a translated source. lines: the line of each
    pair in data/raw.
    """

    train_key: str
    translations: list[str]
    pairs: list[Pair]
    lines: list[int]


def main() -> None:
    paths = arguments(
        __doc__, ids="data/ids", raw="data/raw", codes="data/bpe.codes", vocab="data/vocab.txt", back="data/back"
    )  # fmt: skip
    params = Params.load(paths.params)
    require(paths.ids, paths.raw, paths.codes, paths.vocab)
    empty = BackTranslation("", [], [], [])
    train_key, translations, pairs, lines = translate_back(paths, params) if params.back_translation_steps else empty
    with whole_folder(paths.back) as folder:
        if translations:
            write_lines(folder / "train.src", translations)
            Pairs.save(folder, "train", pairs, lines)
        count = len(pairs) - len(translations)
        write_json(folder / "back.json", {"translated_pairs": count} | ({"train_key": train_key} if train_key else {}))
    print(f"{count:,} training pairs were added by back-translation.")


def translate_back(paths: Namespace, params: Params) -> BackTranslation:
    """Train a model from target to source on all devices, and translate the training targets with it.

    Only the leader returns. The other processes, and the one that launched them all, exit here.
    """
    # Imported here, because torch takes seconds to import and is not needed when back_translation_steps is 0.
    from pipeline.training.job import Training, launch_processes
    from transformer.model.transformer import Transformer
    from transformer.tracking.recorder import BackTranslationCurve
    from transformer.training.distributed import join_processes
    from transformer.training.launch import restore_stop_signals

    launch_processes("pipeline.back_translate")
    with join_processes() as world:
        training = Training(params, params.back_translation_steps, paths.ids, paths.vocab, backwards=True)
        curve = BackTranslationCurve(project_root(), vars(params), training.train_key)
        weights = training.run(world, late_mean, curve)
        restore_stop_signals()  # from here on there is no state to save
        if weights is None:  # not the leader
            sys.exit()
        model = Transformer(training.model_config).to(world.device)
        model.load_state_dict(weights)
        return translated_pairs(paths, training, model.eval())


def late_mean(store: CheckpointStore, state: TrainingState) -> dict[str, Tensor]:
    """The mean of the kept checkpoints in the last third of a finished training; the best checkpoints may be older."""
    from transformer.model.averaging import mean_weights

    steps = sorted(map(int, state.checkpoints))
    return mean_weights([store.weights(step) for step in steps if 3 * step > 2 * steps[-1]])


def translated_pairs(paths: Namespace, training: Training, model: Transformer) -> BackTranslation:
    """Translate the training targets with a model of `training`."""
    from transformer.inference.torch_engine import TorchEngine
    from transformer.inference.translator import Translator

    merges, vocabulary, (source, target) = Merges.load(paths.codes), training.vocabulary, Side.of(training.corpus)
    translator = Translator(TorchEngine([model]), merges, vocabulary, target, source)
    real = Pairs.load(paths.ids, "train")
    targets = list(read_lines(paths.raw / "train.tgt"))
    with bar(len(real), "sentence", "translate train back") as progress:
        translations = translator.translate([targets[line - 1] for line in real.lines], progress=progress.update)
    sources = [vocabulary.ids(subwords) for subwords in translator.subwords(translations, source)]
    fits = [row for row, ids in enumerate(sources) if 1 <= len(ids) <= training.corpus["max_length"]]
    pairs = [(list(one[:-1]), list(other[:-1])) for one, other in zip(real.source, real.target, strict=True)]
    pairs += [(sources[row], pairs[row][1]) for row in fits]
    return BackTranslation(training.train_key, translations, pairs, [*real.lines, *real.lines[fits]])


if __name__ == "__main__":
    run(main)
