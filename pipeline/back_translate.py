"""Stage back_translate: translate the training targets back into the source language, for more training pairs.

The model for it translates from target to source. It is trained here, on data/ids with source and target swapped. The
added pairs have a translated source and a real target (Sennrich et al. 2016, "Improving Neural Machine Translation
Models with Monolingual Data"; on the training text itself, as here: Nguyen et al. 2020, "Data Diversification").

Reads   data/ids, data/raw/train.tgt, data/bpe.codes, data/vocab.txt; work/train-<key>/ (the state to resume from, and
        the lines that were translated before a kill)
Writes  data/back: back.json (the number of translated pairs, and the train_key of the model); training.csv (the curve
        of the model); train.src (the translations); the training pairs: first those of data/ids, then those with
        translated sources, whose tokens are in added.{src,tgt}, for bpe_dropout. With back_translation_steps 0: only
        back.json
Params  back_translation_steps (the number of updates of the model; its checkpoints of the last third are averaged) and
        the knobs of pipeline/training/job.py. DEVICES and SHARDING: see train. One machine computes this stage
"""

from __future__ import annotations

from argparse import Namespace
from itertools import chain
from typing import TYPE_CHECKING

from pipeline.workflow.params import Params
from pipeline.workflow.stage import arguments, require, run
from transformer.files import whole_folder, write_json, write_lines
from transformer.text.pairs import Pairs

if TYPE_CHECKING:
    from pipeline.training.job import TrainingJob
    from transformer.training.distributed import World


def main() -> None:
    paths = arguments(
        __doc__, ids="data/ids", raw="data/raw", codes="data/bpe.codes", vocab="data/vocab.txt", back="data/back"
    )
    params = Params.load(paths.params)
    require(paths.ids, paths.raw / "train.tgt", paths.codes, paths.vocab)
    if not params.back_translation_steps:
        with whole_folder(paths.back) as folder:
            write_json(folder / "back.json", {"translated_pairs": 0})
        print("0 training pairs were added by back-translation.")
        return
    # Imported here, because torch takes seconds to import and is not needed when back_translation_steps is 0.
    from pipeline.training.devices import all_processes
    from pipeline.training.job import TrainingJob

    training = TrainingJob(params, params.back_translation_steps, paths.ids, paths.vocab, backwards=True)
    with all_processes("pipeline.back_translate", training) as world:
        translate_back(paths, training, world)


def translate_back(paths: Namespace, training: TrainingJob, world: World) -> None:
    """Train from target to source and translate the training targets, on all processes. The leader writes data/back."""
    import pandas as pd

    from pipeline.training.back_translations import Translations, added_pairs, back_translator, kept_lines, write_tokens
    from pipeline.training.observers import observing
    from transformer.training.checkpoints import CheckpointStore
    from transformer.training.loop import train

    trainer, store = training.trainer(world), CheckpointStore(training.folder)
    with observing(training, trainer) as observers:
        state = train(trainer, store, training.valid_text(), observers)
    # from here on a stop loses at most the part that each process is translating
    translator = back_translator(training, store, state, paths.codes, world)
    real = Pairs.load(paths.ids, "train")
    translated = Translations.locate(training, paths.raw / "train.tgt", paths.codes)
    translated.make(kept_lines(paths.raw / "train.tgt", real), len(real), translator, world)
    if not world.is_leader:
        return
    with whole_folder(paths.back) as folder:
        pd.DataFrame(state.curve).to_csv(folder / "training.csv", index=False, lineterminator="\n")
        write_lines(folder / "train.src", translated.lines())
        write_json(folder / "train.files.json", real.files)
        text = kept_lines(paths.raw / "train.tgt", real)
        pairs = added_pairs(real, text, translated.lines(), translator, training.corpus["max_length"])
        added = write_tokens(pairs, folder, translator)
        size = len(training.vocabulary)
        count = Pairs.save_rows(folder, "train", chain(real.rows(), added), size) - len(real)
        write_json(folder / "back.json", {"translated_pairs": count, "train_key": training.train_key})
    print(f"{count:,} training pairs were added by back-translation.")


if __name__ == "__main__":
    run(main)
