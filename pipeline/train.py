"""Stage train: train the Transformer, on one device or on many, going on where a killed training stopped.

Reads   data/ids, data/vocab.txt; init_from, a model to go on from; work/train-<key>/, the
        state it resumes from, outside every DVC out
Writes  data/checkpoints, reports/training.csv (the curve), reports/training.json, reports/environment.json (what
        it was computed with)
Params  those named below; the number of devices is no part of the experiment: --nproc-per-node (1, 2, ..., gpu)
"""

import json
import os
import signal
import sys
from argparse import Namespace
from contextlib import nullcontext

import pandas as pd
import torch

from pipeline.environment import environment
from pipeline.stage import alone, arguments, code_key, content_key, cores, project_root, require, run
from transformer.batching import Pairs
from transformer.checkpoint import FORMAT, State, Store, copy_checkpoints, warm_start
from transformer.distributed import World, launch, stop_signals, world
from transformer.files import sha256, starting_model, whole_file, whole_folder
from transformer.loop import Interrupted, Loop, train
from transformer.model import Transformer
from transformer.params import Params
from transformer.progress import Progress
from transformer.recording import TrainingRun
from transformer.text import Vocabulary
from transformer.trainer import Trainer, seed_everything


def main() -> None:
    paths = arguments(
        __doc__, ids="data/ids", vocab="data/vocab.txt", checkpoints="data/checkpoints", curve="reports/training.csv",
        summary="reports/training.json", environment="reports/environment.json", nproc_per_node="1",
    )  # fmt: skip
    params = Params.load(paths.params)
    require(paths.ids, paths.vocab)
    if str(paths.nproc_per_node) != "1" and "WORLD_SIZE" not in os.environ:
        sys.exit(launch("pipeline.train", str(paths.nproc_per_node), sys.argv[1:]))
    with world() as here:
        train_here(paths, params, here)


def train_here(paths: Namespace, params: Params, here: World) -> None:
    """This process's part of the training."""
    stop = stop_signals()
    card = json.loads((paths.ids / "corpus.json").read_text(encoding="utf-8"))
    vocabulary, start = Vocabulary.load(paths.vocab), starting_model(params.init_from)
    sizes = params.only("d_model", "d_ff", "heads", "layers", "dropout", "attention_dropout", "activation_dropout",
                        "norm", "positions", "tie_embeddings")  # fmt: skip
    sizes |= {"vocabulary": len(vocabulary), "max_positions": card["max_length"] + 1}
    update = params.only("seed", "batch_tokens", "device_tokens", "warmup", "lr_factor", "adam_beta1", "adam_beta2",
                         "adam_epsilon", "clip_norm", "label_smoothing", "ema_decay", "precision",
                         "compile")  # fmt: skip
    rhythm = params.only("log_every", "save_every", "patience", "best_by")
    torch.use_deterministic_algorithms(params.deterministic)
    key = content_key(**sizes, **update, **rhythm, deterministic=params.deterministic, keep=params.keep,
                      start=start and sha256(start / "weights.safetensors"), code=code_key(), ids=sha256(paths.ids),
                      vocabulary_file=sha256(paths.vocab))  # fmt: skip
    train_key = content_key(training=key, max_steps=params.max_steps)
    seed_everything(params.seed)
    model = Transformer(**sizes)
    if start is not None:
        warm_start(model, start, sizes, paths.vocab)
    trainer = Trainer(model, Pairs.load(paths.ids, "train"), Pairs.load(paths.ids, "valid"), here, **update)
    folder = project_root() / "work" / f"train-{key[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    threads = 0 if here.device.type == "cuda" else here.size * torch.get_num_threads()
    with (
        alone(folder / "lock") if here.leads else nullcontext(),
        cores(threads) if here.leads and threads else nullcontext(),
    ):
        here.from_leader(None)  # nobody goes on before the leader holds the locks
        store = Store(folder, params.keep)
        facts = environment(here.device, here.size)
        row = TrainingRun(
            project_root(), vars(params), train_key, {f"env_{name}": str(fact) for name, fact in facts.items()}
        )
        with row if here.leads else nullcontext() as tracked:
            progress = Progress(params.max_steps, here.leads, tracked)
            try:
                state = train(trainer, store, Loop(params.max_steps, **rhythm), vocabulary.text,
                              on_update=progress.updated, on_rows=progress.show,
                              wants_stop=lambda: bool(stop))  # fmt: skip
            except Interrupted as reason:
                progress.say(str(reason))
                raise SystemExit(128 + (stop or [signal.SIGTERM])[0]) from None
            finally:
                progress.close()
        if here.leads:
            card |= {"format": FORMAT, "sizes": sizes, "train_key": train_key}
            write_outs(paths, store, state, card, facts)


def write_outs(paths: Namespace, store: Store, state: State, card: dict, facts: dict) -> None:
    """Fill data/checkpoints and the reports from the finished training."""
    with whole_folder(paths.checkpoints) as folder:
        copy_checkpoints(store, state, folder, card)
    with whole_file(paths.curve) as temporary:
        pd.DataFrame(state.curve).to_csv(temporary, index=False, lineterminator="\n")
    for path, record in ((paths.summary, state.summary()), (paths.environment, facts)):
        with whole_file(path) as temporary:
            temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run(main)
