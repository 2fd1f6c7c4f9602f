"""Stage back_translate: pair the training targets with a model's translations of them, for more training pairs.

The model translates from target to source and is trained here, on data/ids with the sides exchanged. What people wrote
stays on the target side (Sennrich et al. 2016, "Improving Neural Machine Translation Models with Monolingual Data"; on
the training text itself, as here: Nguyen et al. 2020, "Data Diversification").

Reads   data/ids, data/raw/train.tgt, data/bpe.codes, data/vocab.txt; work/train-<key>/, the state it resumes from
Writes  data/back: back.json, the number of translated pairs; train.src, the translations; the training pairs, first as
        in data/ids, then with translated sources. With back_translation_steps 0: back.json alone
Params  back_translation_steps, the updates of that model, whose checkpoints of the last third are averaged; the knobs
        of pipeline/training/job.py
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from pipeline.shared.params import Params
from pipeline.shared.stage import arguments, bar, require, run
from transformer.files import read_lines, whole_folder, write_lines
from transformer.text.bpe import Merges
from transformer.text.pairs import Pair, Pairs
from transformer.text.words import Side

if TYPE_CHECKING:
    from pipeline.training.job import Training
    from transformer.model.transformer import Transformer


def main() -> None:
    paths = arguments(
        __doc__, ids="data/ids", raw="data/raw", codes="data/bpe.codes", vocab="data/vocab.txt", back="data/back",
        nproc_per_node="1",
    )  # fmt: skip
    params = Params.load(paths.params)
    require(paths.ids, paths.raw, paths.codes, paths.vocab)
    found, pairs, lines = translate_back(paths, params) if params.back_translation_steps else ([], [], [])
    with whole_folder(paths.back) as folder:
        if found:
            write_lines(folder / "train.src", found)
            Pairs.save(folder, "train", pairs, lines)
        count = len(pairs) - len(found)
        (folder / "back.json").write_text(json.dumps({"translated_pairs": count}) + "\n", encoding="utf-8")
    print(f"{count:,} training pairs more by back-translation")


def translate_back(paths: Namespace, params: Params) -> tuple[list[str], list[Pair], list[int]]:
    """Train a model from target to source on all devices and translate the training targets by it.

    Returns the translations; all pairs, those of data/ids first, then with translated sources; the line of each pair.
    Only the leading process returns: the others end here, and so does the process that started them.
    """
    from pipeline.training.job import Training, spread  # imports torch, which takes seconds that most runs save
    from transformer.model.averaging import mean_weights
    from transformer.model.transformer import Transformer
    from transformer.training.distributed import world
    from transformer.training.launch import heed_signals

    spread("pipeline.back_translate", str(paths.nproc_per_node))
    with world() as here:
        training = Training(params, params.back_translation_steps, paths.ids, paths.vocab, backwards=True)
        store, state = training.run(here)
        heed_signals()  # nothing from here on is worth saving
        if not here.leads:
            sys.exit()
        steps = sorted(map(int, state.checkpoints))
        late = [step for step in steps if 3 * step > 2 * steps[-1]]  # one kept as the best may be older
        model = Transformer(training.model_config).to(here.device)
        model.load_state_dict(mean_weights([store.weights(step) for step in late]))
        return translated_pairs(paths, training, model.eval())


def translated_pairs(
    paths: Namespace, training: Training, model: Transformer
) -> tuple[list[str], list[Pair], list[int]]:
    """What `translate_back` returns, with this model."""
    from transformer.inference.torch_engine import TorchEngine
    from transformer.inference.translator import Translator

    merges, vocabulary, (source, target) = Merges.load(paths.codes), training.vocabulary, Side.of(training.card)
    translator = Translator(TorchEngine([model]), merges, vocabulary, target, source)
    real = Pairs.load(paths.ids, "train")
    targets = list(read_lines(paths.raw / "train.tgt"))
    with bar(len(real), "sentence", "translate train back") as progress:
        found = translator.translate([targets[line - 1] for line in real.lines], progress=progress.update)
    sources = [vocabulary.ids(subwords) for subwords in translator.words(found, source)]
    fits = [row for row, ids in enumerate(sources) if 1 <= len(ids) <= training.card["max_length"]]
    pairs = [(list(one[:-1]), list(other[:-1])) for one, other in zip(real.source, real.target, strict=True)]
    pairs += [(sources[row], pairs[row][1]) for row in fits]
    return found, pairs, [*real.lines, *real.lines[fits]]


if __name__ == "__main__":
    run(main)
