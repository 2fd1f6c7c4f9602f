"""A training with given knobs and data. A training that was stopped or killed is resumed from its last state."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.identity import changed_since, code_keys, content_key
from pipeline.params import Params
from pipeline.stage import project_root
from pipeline.tracking.live import LiveRun
from pipeline.training.progress import Progress
from pipeline.versions import installed
from transformer.evaluation.scores import bleu_tokenizer
from transformer.files import read_lines, sha256, write_json
from transformer.model.config import TransformerConfig
from transformer.model.transformer import Transformer
from transformer.model.weights import check_start, warm_start
from transformer.text.pairs import Pairs
from transformer.text.vocabulary import Vocabulary
from transformer.training.batches import idle_remark
from transformer.training.checkpoints import CheckpointStore, TrainingState
from transformer.training.config import TrainConfig
from transformer.training.distributed import World
from transformer.training.launch import catch_stop_signals
from transformer.training.loop import Interrupted, Observers, train
from transformer.training.process import prepare_process
from transformer.training.samples import table
from transformer.training.sharding import wants_shards
from transformer.training.train_step import Trainer, seed_everything
from transformer.training.validation import ValidText

# Knobs of TrainConfig that change no update, so a state serves all their values; see transformer/training/history.py.
CHANGES_NO_UPDATE = ("max_steps", "log_every", "save_every", "keep", "patience", "best_by")


def sharding_requested() -> bool:
    """Whether SHARDING in the environment requests weights in shards. Raises ValueError; see `wants_shards`."""
    return wants_shards(os.environ.get("SHARDING", ""))


def sharded(world: World) -> bool:
    """Whether each process holds a share of the weights: if the leader's SHARDING says so. All processes call this."""
    return world.from_leader(world.is_leader and sharding_requested()) and world.size > 1


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
        return self.params.take(
            TransformerConfig, vocabulary=len(self.vocabulary), max_positions=self.corpus["max_length"] + 1
        )

    @cached_property
    def config(self) -> TrainConfig:
        """The settings of the training."""
        return self.params.take(TrainConfig, max_steps=self.max_steps)

    @cached_property
    def identity(self) -> dict[str, dict[str, Any]]:
        """Everything that an update depends on. max_steps and the settings of training/history.py change none."""
        settings = {name: value for name, value in asdict(self.config).items() if name not in CHANGES_NO_UPDATE}
        tokens = bleu_tokenizer(self.corpus[self.target_side])[0] if self.config.best_by == "bleu" else "13a"
        files = {
            "ids": self.ids,
            "train_ids": self.train_ids,
            "vocabulary": self.vocab,
            "init_from": self.initial_model and self.initial_model / "weights.safetensors",
        }
        return {
            "knobs": Params.for_keys({**asdict(self.model_config), **settings, "backwards": self.backwards}),
            # A file of sacreBLEU may appear or vanish: a validation by other tokens is of another training.
            "data": {name: path and sha256(path) for name, path in files.items()}
            | ({} if tokens == "13a" else {"bleu_tokens": tokens}),
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

    @property
    def folder(self) -> Path:
        """The folder of the states."""
        return project_root() / "work" / f"train-{self.key[:16]}"

    def check(self) -> None:
        """Raise ValueError for data, a model to start from, or a value of SHARDING that this training cannot use."""
        sharding_requested()
        for split in ("train", "valid"):
            self.pairs(split).check_lengths(split, self.config.device_tokens)
        if self.initial_model is not None:
            check_start(self.model_config, self.initial_model, self.vocab)

    def trainer(self, world: World) -> Trainer:
        """The trainer of this process, with initial weights."""
        seed_everything(self.config.seed)
        model = Transformer(self.model_config)
        if self.initial_model is not None:
            warm_start(model, self.initial_model, self.vocab)
        return Trainer(model, self.pairs("train"), self.pairs("valid"), world, self.config, sharded(world))

    @property
    def target_side(self) -> str:
        """The side of the corpus that the model writes: target, or source if it is trained backwards."""
        return "source" if self.backwards else "target"

    def valid_text(self) -> ValidText:
        """The text of the validation pairs, in the direction of the training."""
        sides = ("target", "source") if self.backwards else ("source", "target")
        sources, references = (list(read_lines(self.ids / f"valid.{side}.txt")) for side in sides)
        return ValidText(self.vocabulary.text, sources, references, self.corpus[self.target_side])

    def samples(self, state: TrainingState) -> str:
        """The samples of a state as CSV."""
        return table(state.samples, self.pairs("valid").source_lengths, self.valid_text(), self.config.save_every)

    def remarks(self, trainer: Trainer) -> Iterator[str]:
        """The messages to print before the first update, one line each."""
        if not list(self.folder.glob("state-*.json")) and (changed := changed_since(self.folder, self.identity)):
            yield f"Training starts anew: {changed}."
        if self.config.precision == "bfloat16" and trainer.model.compute is None:
            yield "This machine has no instructions for bfloat16. Training computes in float32, which is faster here."
        if self.config.best_by == "bleu" and (remark := bleu_tokenizer(self.corpus[self.target_side])[1]):
            yield remark
        if sharding_requested() and trainer.world.size == 1:
            yield "SHARDING=full changes nothing in one process. Set DEVICES, and the devices share the weights."
        if trainer.sharded and self.config.compile:
            yield "compile=true has no effect with SHARDING=full. The training runs uncompiled."
        if idle := idle_remark(
            trainer.batches, trainer.world.size, self.config.device_tokens, self.corpus["max_length"]
        ):
            yield idle
        warmup, max_steps = self.config.warmup, self.max_steps
        if warmup > max_steps:
            yield (
                f"warmup={warmup} is longer than max_steps={max_steps}. The learning rate still rises when training "
                f"ends, at {100 * max_steps / warmup:.0f}% of its peak, so the model learns little. Lower warmup or "
                "raise max_steps."
            )

    def run(self, world: World, tracked_run: LiveRun | None = None) -> tuple[CheckpointStore, TrainingState]:
        """Train to the end in this process, which is one of `world`. Returns the folder of states and the last state.

        tracked_run: what gets the curve; the leader sends it. On SIGTERM or SIGINT the state of the last whole update
        is saved and SystemExit is raised.
        """
        signals = catch_stop_signals()
        prepare_process(self.config.deterministic)
        trainer, store = self.trainer(world), CheckpointStore(self.folder)
        remarks = list(self.remarks(trainer)) if world.is_leader else []
        if world.is_leader:
            write_json(self.folder / "identity.json", self.identity)
        with tracked_run if tracked_run and world.is_leader else nullcontext() as tracked:
            progress = Progress(self.max_steps, world.is_leader, tracked)
            for line in remarks:
                progress.say(line)
            observers = Observers(
                on_rows=progress.show,
                on_update=lambda step, update: progress.updated(step, update.tokens, update.gradient_norm),
                stop_requested=lambda: bool(signals),
                on_samples=progress.show_samples,
            )
            try:
                return store, train(trainer, store, self.valid_text(), observers)
            except Interrupted as reason:
                progress.say(str(reason))
                raise SystemExit(128 + (signals or [signal.SIGTERM])[0]) from None
            finally:
                progress.close()
