"""The work of the stage back_translate, apart from its script: importing torch takes seconds, which most runs save."""

import sys
from argparse import Namespace

import torch

from pipeline.stage import bar
from pipeline.training import Training, spread
from transformer.averaging import mean_weights
from transformer.batching import Pair, Pairs
from transformer.distributed import heed_signals, world
from transformer.files import read_lines
from transformer.model import Transformer
from transformer.params import Params
from transformer.text import Merges, Side
from transformer.torch_engine import TorchEngine
from transformer.translator import Translator

Made = tuple[list[str], list[Pair], list[int]]


def back_translate(paths: Namespace, params: Params) -> Made:
    """Train a model from target to source on all devices and translate the training targets by it.

    The translations; all pairs, those of data/ids first, then with translated sources; the line of each. Ends the
    process where another one leads, or where the processes are its children.
    """
    spread("pipeline.back_translate", str(paths.nproc_per_node))
    with world() as here:
        training = Training(params, params.back_translation_steps, paths.ids, paths.vocab, backwards=True)
        store, state = training.run(here)
        heed_signals()  # nothing from here on is worth saving
        if not here.leads:
            sys.exit()
        steps = sorted(map(int, state.checkpoints))
        late = [step for step in steps if 3 * step > 2 * steps[-1]]  # one kept as the best may be older
        model = Transformer(**training.sizes).to(here.device)
        model.load_state_dict(mean_weights([store.weights(step) for step in late]))
        return translated(paths, training, model.eval())


@torch.inference_mode()
def translated(paths: Namespace, training: Training, model: Transformer) -> Made:
    """What `back_translate` gives, by this model."""
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
