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
from argparse import Namespace
from pathlib import Path

import torch

from pipeline.stage import arguments, bar, require, run
from pipeline.training import Training, spread
from transformer.averaging import mean_weights
from transformer.batching import Pairs
from transformer.distributed import heed_signals, world
from transformer.files import read_lines, whole_folder, write_lines
from transformer.model import Transformer
from transformer.params import Params
from transformer.text import Merges, Side
from transformer.torch_engine import TorchEngine
from transformer.translator import Translator


def main() -> None:
    paths = arguments(
        __doc__, ids="data/ids", raw="data/raw", codes="data/bpe.codes", vocab="data/vocab.txt", back="data/back",
        nproc_per_node="1",
    )  # fmt: skip
    params = Params.load(paths.params)
    require(paths.ids, paths.raw, paths.codes, paths.vocab)
    if not params.back_translation_steps:
        with whole_folder(paths.back) as folder:
            note(folder, 0)
        return
    spread("pipeline.back_translate", str(paths.nproc_per_node))
    with world() as here:
        training = Training(params, params.back_translation_steps, paths.ids, paths.vocab, backwards=True)
        store, state = training.run(here)
        heed_signals()  # nothing from here on is worth saving
        if here.leads:
            steps = sorted(map(int, state.checkpoints))
            late = [step for step in steps if 3 * step > 2 * steps[-1]]  # one kept as the best may be older
            model = Transformer(**training.sizes).to(here.device)
            model.load_state_dict(mean_weights([store.weights(step) for step in late]))
            write_pairs(paths, training, model.eval())


@torch.inference_mode()
def write_pairs(paths: Namespace, training: Training, model: Transformer) -> None:
    """Translate the targets and write all pairs."""
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
    with whole_folder(paths.back) as folder:
        Pairs.save(folder, "train", pairs, [*real.lines, *real.lines[fits]])
        write_lines(folder / "train.src", found)
        note(folder, len(fits))


def note(folder: Path, count: int) -> None:
    """Say, on the disk and to the user, how many pairs back-translation adds."""
    (folder / "back.json").write_text(json.dumps({"translated_pairs": count}) + "\n", encoding="utf-8")
    print(f"{count:,} training pairs more by back-translation")


if __name__ == "__main__":
    run(main)
