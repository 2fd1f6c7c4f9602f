"""A training with given knobs and data. A training that was stopped or killed is resumed from its last state."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch

from pipeline.shared.keys import changed_since, code_keys, content_key
from pipeline.shared.locks import hold_cores, hold_lock
from pipeline.shared.params import Params
from pipeline.shared.stage import project_root
from pipeline.shared.versions import installed
from transformer.files import sha256, write_json
from transformer.model.transformer import Transformer, TransformerConfig
from transformer.model.weights import warm_start
from transformer.text.pairs import Pairs
from transformer.text.vocabulary import Vocabulary
from transformer.tracking.progress import Progress
from transformer.tracking.recorder import BackTranslationCurve, TrainingRun
from transformer.training.checkpoints import CheckpointStore, TrainingState
from transformer.training.config import TrainConfig
from transformer.training.distributed import World
from transformer.training.launch import catch_stop_signals, launch
from transformer.training.loop import Interrupted, Observers, train
from transformer.training.train_step import Trainer, seed_everything

Result = TypeVar("Result")

# Knobs of TrainConfig: states of the same training serve all their values, see transformer/training/history.py.
CHANGES_NO_UPDATE = ("max_steps", "log_every", "save_every", "keep", "patience", "best_by")


def launch_processes(module: str) -> None:
    """Run a stage in as many processes as DEVICES in the environment says (1, 2, ..., gpu), and exit with their status.

    Returns at once if DEVICES is 1 or not set, or in a process that was started for this stage.
    """
    processes = os.environ.get("DEVICES") or "1"
    if processes != "1" and "WORLD_SIZE" not in os.environ:
        sys.exit(launch(module, processes, sys.argv[1:]))


@dataclass(frozen=True)
class Training:
    """A training, whose states are in `work/train-<key>/`. The key is the same for any number of processes.

    ids: folder with the pairs of train and valid. vocab: file of the vocabulary. train_ids: folder with the training
    pairs; None: those of `ids`. initial_model: model folder whose weights the training starts from; None: random
    weights. backwards: train from target to source.
    """

    params: Params
    max_steps: int
    ids: Path
    vocab: Path
    train_ids: Path | None = None
    initial_model: Path | None = None
    backwards: bool = False

    @cached_property
    def corpus(self) -> dict[str, Any]:
        """The contents of corpus.json: languages, lower-casing, max_length and numbers of pairs."""
        return json.loads((self.ids / "corpus.json").read_text(encoding="utf-8"))

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of both sides."""
        return Vocabulary.load(self.vocab)

    @cached_property
    def model_config(self) -> TransformerConfig:
        """The sizes of the model."""
        return self.params.take(TransformerConfig, vocabulary=len(self.vocabulary),
                                max_positions=self.corpus["max_length"] + 1)  # fmt: skip

    @cached_property
    def config(self) -> TrainConfig:
        """The settings of the training."""
        return self.params.take(TrainConfig, max_steps=self.max_steps)

    @cached_property
    def identity(self) -> dict[str, dict[str, Any]]:
        """Everything that an update depends on. max_steps and the settings of training/history.py change none."""
        settings = {name: value for name, value in asdict(self.config).items() if name not in CHANGES_NO_UPDATE}
        files = {"ids": self.ids, "train_ids": self.train_ids, "vocabulary": self.vocab,
                 "init_from": self.initial_model and self.initial_model / "weights.safetensors"}  # fmt: skip
        return {
            "knobs": Params.for_keys({**asdict(self.model_config), **settings, "backwards": self.backwards}),
            "data": {name: path and sha256(path) for name, path in files.items()},
            "code": code_keys(),
            "versions": {name: installed(name) for name in ("numpy", "torch")},
        }

    @cached_property
    def key(self) -> str:
        """One hash of everything that an update depends on."""
        return content_key(**self.identity)

    @property
    def train_key(self) -> str:
        """One hash of everything that the finished training depends on."""
        settings = asdict(self.config)
        return content_key(training=self.key, **Params.for_keys({name: settings[name] for name in CHANGES_NO_UPDATE}))

    def pairs(self, split: str) -> Pairs:
        """The pairs of a split (train or valid), in the direction of the training."""
        pairs = Pairs.load(self.train_ids if self.train_ids and split == "train" else self.ids, split)
        return pairs.backwards() if self.backwards else pairs

    def trainer(self, world: World) -> Trainer:
        """The trainer of this process, with initial weights."""
        torch.use_deterministic_algorithms(self.config.deterministic)
        seed_everything(self.config.seed)
        model = Transformer(self.model_config)
        if self.initial_model is not None:
            warm_start(model, self.initial_model, self.vocab)
        return Trainer(model, self.pairs("train"), self.pairs("valid"), world, self.config)

    def remarks(self, trainer: Trainer, folder: Path) -> Iterator[str]:
        """The messages to print before the first update, one line each. folder: of the states."""
        if not list(folder.glob("state-*.json")) and (changed := changed_since(folder, self.identity)):
            yield f"Training starts anew: {changed}."
        if self.config.precision == "bfloat16" and trainer.model.compute is None:
            yield "This machine has no instructions for bfloat16. Training computes in float32, which is faster here."
        warmup, max_steps = self.config.warmup, self.max_steps
        if warmup > max_steps:
            yield (
                f"warmup={warmup} is longer than max_steps={max_steps}. The learning rate still rises when training "
                f"ends, at {100 * max_steps / warmup:.0f}% of its peak, so the model learns little. Lower warmup or "
                "raise max_steps."
            )

    def run(
        self,
        world: World,
        finish: Callable[[CheckpointStore, TrainingState], Result],
        tracked_run: TrainingRun | BackTranslationCurve | None = None,
    ) -> Result | None:
        """Train to the end in this process, which is one of `world`.

        finish: the leader calls it at the end, with the folder of states, which is locked until then, and the last
        state. Returns its result; None in the other processes. tracked_run: what gets the curve. On
        SIGTERM or SIGINT the state is saved and SystemExit is raised.
        """
        signals = catch_stop_signals()
        trainer = self.trainer(world)
        folder = project_root() / "work" / f"train-{self.key[:16]}"
        folder.mkdir(parents=True, exist_ok=True)
        with hold_locks(folder, world):
            store = CheckpointStore(folder)
            remarks = list(self.remarks(trainer, folder))
            if world.is_leader:
                write_json(folder / "identity.json", self.identity)
            with tracked_run if tracked_run and world.is_leader else nullcontext() as tracked:
                progress = Progress(self.max_steps, world.is_leader, tracked)
                for line in remarks:
                    progress.say(line)
                observers = Observers(
                    on_rows=progress.show,
                    on_update=lambda step, update: progress.updated(step, update.tokens, update.gradient_norm),
                    stop_requested=lambda: bool(signals),
                )
                try:
                    state = train(trainer, store, self.vocabulary.text, observers)
                except Interrupted as reason:
                    progress.stopped()
                    progress.say(str(reason))
                    raise SystemExit(128 + (signals or [signal.SIGTERM])[0]) from None
                finally:
                    progress.close()
            return finish(store, state) if world.is_leader else None


@contextmanager
def hold_locks(folder: Path, world: World) -> Iterator[None]:
    """Hold the lock of a training's folder and, on CPUs, of the cores that it uses.

    The leader takes the locks; the block starts in all processes when the leader has them.
    """
    threads = 0 if world.device.type == "cuda" else world.size * torch.get_num_threads()
    with (
        hold_lock(folder / "lock") if world.is_leader else nullcontext(),
        hold_cores(threads) if world.is_leader and threads else nullcontext(),
    ):
        world.from_leader(None)
        yield
