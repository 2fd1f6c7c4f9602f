"""Stage train: train the Transformer on one device or on many. A stopped or killed training is resumed.

Reads   data/ids, data/back, data/vocab.txt; init_from (a model folder to start from); work/train-<key>/ (the state to
        resume from; it is not in any DVC out)
Writes  data/checkpoints, reports/training.csv (the curve), reports/training.json, reports/environment.json (the
        software and hardware used), reports/samples.csv (the greedy translations of three validation sentences at each
        validation); work/runs (the record of the MLflow run, which is sent while it trains)
Params  init_from, max_steps and the knobs of pipeline/training/job.py. The number of devices is not a param, because it
        is not part of the experiment: the environment variable DEVICES (1, 2, ..., gpu). Nor is whether each device
        holds a share of the weights: the environment variable SHARDING (none, full)
"""

import json
from argparse import Namespace
from dataclasses import asdict

import pandas as pd

from pipeline.params import Params
from pipeline.stage import arguments, project_root, require, run
from pipeline.tracking.recorder import TrainingRun
from pipeline.training.devices import all_processes
from pipeline.training.environment import environment
from pipeline.training.job import Training, sharded
from transformer.files import whole_file, whole_folder, write_json, write_text
from transformer.model_folder import starting_model
from transformer.training.checkpoints import FORMAT, CheckpointStore, TrainingState, copy_checkpoints
from transformer.training.distributed import World


def main() -> None:
    paths = arguments(
        __doc__,
        ids="data/ids",
        back="data/back",
        vocab="data/vocab.txt",
        checkpoints="data/checkpoints",
        curve="reports/training.csv",
        summary="reports/training.json",
        environment="reports/environment.json",
        samples="reports/samples.csv",
    )
    params = Params.load(paths.params)
    require(paths.ids, paths.back, paths.vocab)
    train_ids = paths.back if (paths.back / "train.lines.npy").is_file() else None
    initial_model = starting_model(params.init_from)
    training = Training(params, params.max_steps, paths.ids, paths.vocab, train_ids, initial_model)
    with all_processes("pipeline.train", training) as world:
        train(paths, params, training, world)


def train(paths: Namespace, params: Params, training: Training, world: World) -> None:
    """Train in this process, which is one of `world`. The leader writes the outs."""
    facts = environment(world.device, world.size, sharded(world))
    tags = {f"env_{name}": str(fact) for name, fact in facts.items()}
    back = paths.back / "back.json"
    back_key = json.loads(back.read_text(encoding="utf-8")).get("train_key", "") if back.is_file() else ""
    tracked_run = TrainingRun(project_root(), vars(params), training.train_key, tags, training.key, back_key)
    store, state = training.run(world, tracked_run)
    if world.is_leader:
        description = training.corpus | {
            "format": FORMAT,
            "sizes": asdict(training.model_config),
            "train_key": training.train_key,
        }
        write_outs(paths, store, state, description, facts)
        write_text(paths.samples, training.samples(state))


def write_outs(paths: Namespace, store: CheckpointStore, state: TrainingState, description: dict, facts: dict) -> None:
    """Write data/checkpoints and the reports of a finished training.

    description: the contents of model.json. facts: the contents of environment.json.
    """
    with whole_folder(paths.checkpoints) as folder:
        copy_checkpoints(store, state, folder, description)
    with whole_file(paths.curve) as temporary:
        pd.DataFrame(state.curve).to_csv(temporary, index=False, lineterminator="\n")
    write_json(paths.summary, state.summary())
    write_json(paths.environment, facts)


if __name__ == "__main__":
    run(main)
