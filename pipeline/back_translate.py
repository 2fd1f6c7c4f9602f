"""Stage back_translate: translate text of the target language back into the source language, for more training pairs.

The model for it translates from target to source. It is trained here, on data/ids with source and target swapped. The
added pairs have a translated source and a real target (Sennrich et al. 2016, "Improving Neural Machine Translation
Models with Monolingual Data"): here those of train, each of which keeps its real source too (Nguyen et al. 2020, "Data
Diversification").

Reads   data/ids, data/raw/train.tgt, data/bpe.codes, data/vocab.txt; work/train-<key>/ (the state to resume
        from, and the lines that were translated before a kill)
Writes  data/back: back.json (the number of translated pairs, and the train_key of the model); training.csv (the curve
        of the model); train.src, train.tgt (the translations and their lines); the training pairs: first those of
        data/ids, then those with translated sources. With back_translation_steps 0: only back.json
Params  back_translation_steps (the number of updates of the model; its checkpoints of the last third are averaged), and
        the knobs of pipeline/training/job.py. DEVICES: see train. One machine computes this stage
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
        translate_back(paths, params, training, world)


def translate_back(paths: Namespace, params: Params, training: TrainingJob, world: World) -> None:
    """Train from target to source and translate a text, on all processes. The leader writes data/back."""
    import pandas as pd

    from pipeline.training import back_translations as back
    from pipeline.training.observers import make_observers
    from transformer.training.checkpoints import CheckpointStore
    from transformer.training.loop import train

    real, max_length = Pairs.load(paths.ids, "train"), training.corpus["max_length"]
    text, count = paths.raw / "train.tgt", len(real)
    trainer, store = training.trainer(world), CheckpointStore(training.folder)
    # before the inputs are compared, so that the code which names the translations is that which makes them
    translated = back.Translations.locate(training, text, count, paths.codes)
    with make_observers(training, trainer) as observers:
        state = train(trainer, store, training.valid_text(), observers, identity=training.identity)
    # from here on a stop loses at most the part that each process is translating
    translator = back.back_translator(training, store, state, paths.codes, world)

    translated.make(back.kept_lines(text, real), count, translator, world)
    if not world.is_leader:
        return
    with whole_folder(paths.back) as folder:
        pd.DataFrame(state.curve).to_csv(folder / "training.csv", index=False, lineterminator="\n")
        write_lines(folder / "train.src", translated.lines())
        write_lines(folder / "train.tgt", back.kept_lines(text, real))
        numbered = zip(translated.lines(), back.kept_lines(text, real), real.lines.tolist(), strict=True)
        write_json(folder / "train.files.json", real.files)
        added = back.added_pairs(numbered, translator, max_length)
        every = Pairs.save_rows(folder, "train", chain(real.rows(), added), len(training.vocabulary))
        translated_pairs = every - len(real)
        write_json(folder / "back.json", {"translated_pairs": translated_pairs, "train_key": training.train_key})
    print(f"{translated_pairs:,} training pairs were added by back-translation of {count:,} lines of {text}.")


if __name__ == "__main__":
    run(main)
