"""Stage train: train the Transformer, on one device or on many, going on where a killed training stopped.

Reads   data/ids, data/back, data/vocab.txt; init_from, a model to go on from; work/train-<key>/, the
        state it resumes from, outside every DVC out
Writes  data/checkpoints, reports/training.csv (the curve), reports/training.json, reports/environment.json (what
        it was computed with)
Params  init_from, max_steps and what training.py names; the number of devices is no part of the experiment:
        --nproc-per-node (1, 2, ..., gpu)
"""

import json
from argparse import Namespace
from dataclasses import asdict

import pandas as pd

from pipeline.shared.params import Params
from pipeline.shared.stage import arguments, project_root, require, run
from pipeline.training.environment import environment
from pipeline.training.job import Training, spread
from transformer.files import whole_file, whole_folder
from transformer.model_folder import starting_model
from transformer.tracking.recorder import TrainingRun
from transformer.training.checkpoints import FORMAT, CheckpointStore, TrainingState, copy_checkpoints
from transformer.training.distributed import World, world


def main() -> None:
    paths = arguments(
        __doc__, ids="data/ids", back="data/back", vocab="data/vocab.txt", checkpoints="data/checkpoints",
        curve="reports/training.csv", summary="reports/training.json", environment="reports/environment.json",
        nproc_per_node="1",
    )  # fmt: skip
    params = Params.load(paths.params)
    require(paths.ids, paths.back, paths.vocab)
    spread("pipeline.train", str(paths.nproc_per_node))
    with world() as here:
        train_here(paths, params, here)


def train_here(paths: Namespace, params: Params, here: World) -> None:
    """This process's part of the training."""
    more = paths.back if (paths.back / "train.lines.npy").is_file() else None
    start = starting_model(params.init_from)
    training = Training(params, params.max_steps, paths.ids, paths.vocab, more, start)
    facts = environment(here.device, here.size)
    tags = {f"env_{name}": str(fact) for name, fact in facts.items()}
    row = TrainingRun(project_root(), vars(params), training.train_key, tags)
    store, state = training.run(here, row)
    if here.leads:
        card = training.card | {
            "format": FORMAT,
            "sizes": asdict(training.model_config),
            "train_key": training.train_key,
        }
        write_outs(paths, store, state, card, facts)


def write_outs(paths: Namespace, store: CheckpointStore, state: TrainingState, card: dict, facts: dict) -> None:
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
