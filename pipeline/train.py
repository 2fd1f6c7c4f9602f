"""Stage train: train the Transformer on one device or on many. A stopped or killed training is resumed.

Reads   data/ids, data/back, data/vocab.txt; init_from (a model folder to start from); work/train-<key>/ (the state to
        resume from; it is not in any DVC out)
Writes  data/checkpoints, reports/training.csv (the curve), reports/training.json, reports/environment.json (the
        software and hardware that made the updates), reports/samples.csv (the greedy translations of three validation
        sentences at each validation); the live curve of the MLflow run
Params  init_from, max_steps and the knobs of pipeline/training/job.py. The devices are not params, because they are
        not part of the experiment: the environment variables DEVICES (1, 2, ..., gpu), and for several machines NODES,
        NODE_RANK and RENDEZVOUS (docs/cluster.md)
"""

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import asdict

import pandas as pd

from pipeline.tracking.live import LiveRun
from pipeline.training.devices import all_processes, environment, follow_first_machine, join_environments
from pipeline.training.job import TrainingJob
from pipeline.training.launch import Machines
from pipeline.training.observers import make_observers
from pipeline.workflow.params import Params
from pipeline.workflow.stage import arguments, require, run
from transformer.files import whole_file, whole_folder, write_json, write_text
from transformer.model_folder import starting_model
from transformer.training.checkpoints import FORMAT, CheckpointStore, TrainingState, copy_checkpoints
from transformer.training.distributed import World
from transformer.training.loop import train

MODULE = "pipeline.train"
MOST_RISE = 1.2  # of the validation loss above its best, before a remark


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
    follow_first_machine(MODULE)
    run_stage(paths)


def run_stage(paths: Namespace) -> None:
    """Train with the params and data at these paths."""
    params = Params.load(paths.params)
    require(paths.ids, paths.back, paths.vocab)
    train_ids = paths.back if (paths.back / "train.lines.npy").is_file() else None
    initial_model = starting_model(params.init_from)
    training = TrainingJob(params, params.max_steps, paths.ids, paths.vocab, train_ids, initial_model)
    with all_processes(MODULE, training, Machines.read_environment()) as world:
        train_and_write(paths, training, world)


def train_and_write(paths: Namespace, training: TrainingJob, world: World) -> None:
    """Train in this process, which is one of `world`. The leader writes the outs."""
    trainer, store = training.trainer(world), CheckpointStore(training.folder)
    machine = environment(world.device, world.size)
    tags = {f"env_{name}": str(value) for name, value in machine.items()}
    live_run = LiveRun(training.folder, vars(training.params), training.train_key, tags)
    with make_observers(training, trainer, live_run) as observers:
        state = train(trainer, store, training.valid_text(), observers, machine, training.identity)
    if world.is_leader:
        description = training.corpus | {
            "format": FORMAT,
            "sizes": asdict(training.model_config),
            "train_key": training.train_key,
        }
        write_outs(paths, store, state, description)
        write_text(paths.samples, training.samples(state))
        print(overfitting_remark(state.summary()), end="")


def overfitting_remark(summary: Mapping[str, float | int | None]) -> str:
    """A line for a training at whose end the validation loss is far above its best, else "". summary: training.json."""
    last, best = summary["valid_loss"] or 0, summary["best_valid_loss"] or 0
    if last < MOST_RISE * best:
        return ""
    return (
        f"The validation loss rose from {best:.2f} to {last:.2f}: the model overfits the training text. Set "
        "average=best, lower max_steps, raise dropout, or add text.\n"
    )


def write_outs(paths: Namespace, store: CheckpointStore, state: TrainingState, description: dict) -> None:
    """Write data/checkpoints and the reports of a finished training. description: the contents of model.json."""
    with whole_folder(paths.checkpoints) as folder:
        copy_checkpoints(store, state, folder, description)
    with whole_file(paths.curve) as temporary:
        pd.DataFrame(state.curve).to_csv(temporary, index=False, lineterminator="\n")
    write_json(paths.summary, state.summary())
    write_json(paths.environment, join_environments(state.environments))


if __name__ == "__main__":
    run(main)
