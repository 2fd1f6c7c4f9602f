"""Stage back_translate: translate text of the target language back into the source language, for more training pairs.

The model for it translates from target to source. It is trained here, on data/ids with source and target swapped. The
added pairs have a translated source and a real target (Sennrich et al. 2016, "Improving Neural Machine Translation
Models with Monolingual Data"). With mono_path: recipes/targets the text is that of the training targets (Nguyen
et al. 2020, "Data Diversification"), and sources have no tag, as in that paper: each target has its real source too. Of
another text, mono_ratio lines are translated for each training pair; the rules of the filter clean them, and each
source begins with the tag <s>.

Reads   data/ids, data/raw/train.tgt, data/bpe.codes, data/vocab.txt; mono_path; work/train-<key>/ (the state to resume
        from, and the lines that were translated before a kill)
Writes  data/back: back.json (the number of translated pairs, and the train_key of the model); training.csv (the curve
        of the model); train.src, train.tgt (the translations and their lines); the training pairs: first those of
        data/ids, then those with translated sources. With back_translation_steps 0: only back.json
Params  back_translation_steps (the number of updates of the model; its checkpoints of the last third are averaged),
        mono_path, mono_ratio, the languages, the rules of the filter, and the knobs of pipeline/training/job.py.
        DEVICES: see train. One machine computes this stage
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from itertools import chain, islice
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.workflow.params import TRAIN_TARGETS, Params
from pipeline.workflow.stage import arguments, require, run
from transformer.files import Mistake, whole_folder, write_json, write_lines
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
    if not Path(params.mono_path).is_file():
        raise Mistake(
            f"mono_path={params.mono_path} is no file. Name a text of the target language, one sentence a line, or "
            f"{TRAIN_TARGETS} to translate the targets of train."
        )
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
    from transformer.corpora.rules import FilterConfig
    from transformer.corpora.text_files import lines_of
    from transformer.training.checkpoints import CheckpointStore
    from transformer.training.loop import train

    real, max_length = Pairs.load(paths.ids, "train"), training.corpus["max_length"]
    of_train = params.mono_path == TRAIN_TARGETS
    text = paths.raw / "train.tgt" if of_train else Path(params.mono_path)
    wanted = len(real) if of_train else ceil(params.mono_ratio * len(real))
    count = len(real) if of_train else sum(1 for _ in islice(lines_of(text), wanted))
    if not count:
        raise Mistake(f"{text} has no lines to translate. Name a text of the target language, one sentence a line.")
    trainer, store = training.trainer(world), CheckpointStore(training.folder)
    # before the inputs are compared, so that the code which names the translations is that which makes them
    translated = back.Translations.locate(training, text, count, paths.codes)
    with make_observers(training, trainer) as observers:
        state = train(trainer, store, training.valid_text(), observers, identity=training.identity)
    # from here on a stop loses at most the part that each process is translating
    translator = back.back_translator(training, store, state, paths.codes, world)

    def lines() -> Iterator[str]:
        every = back.kept_lines(text, real) if of_train else back.fitting_lines(text, translator, max_length)
        return islice(every, count)

    translated.make(lines(), count, translator, world)
    if not world.is_leader:
        return
    with whole_folder(paths.back) as folder:
        pd.DataFrame(state.curve).to_csv(folder / "training.csv", index=False, lineterminator="\n")
        write_lines(folder / "train.src", translated.lines())
        write_lines(folder / "train.tgt", lines())
        files = real.files
        if of_train:
            numbered = zip(translated.lines(), lines(), real.lines.tolist(), strict=True)
        else:
            files = [*(files or [("train", int(real.lines[-1]))]), (str(text), count)]
            before, languages = sum(number for _, number in files[:-1]), (params.source, params.target)
            clean = back.clean_pairs(folder / "train.src", folder / "train.tgt", params.take(FilterConfig), languages)
            numbered = ((translation, line, before + number) for translation, line, number in clean)
        write_json(folder / "train.files.json", files)
        added = back.added_pairs(numbered, translator, max_length, tagged=not of_train)
        every = Pairs.save_rows(folder, "train", chain(real.rows(), added), len(training.vocabulary))
        translated_pairs = every - len(real)
        write_json(folder / "back.json", {"translated_pairs": translated_pairs, "train_key": training.train_key})
    print(f"{translated_pairs:,} training pairs were added by back-translation of {count:,} lines of {text}.")


if __name__ == "__main__":
    run(main)
