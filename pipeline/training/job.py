"""What the stages that train share: a training by its knobs and data, which goes on where a killed one stopped."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from pipeline.shared.keys import code_key, content_key
from pipeline.shared.locks import alone, cores
from pipeline.shared.params import Params
from pipeline.shared.stage import project_root
from transformer.files import sha256
from transformer.model.transformer import Transformer, TransformerConfig
from transformer.model.weights import warm_start
from transformer.text.pairs import Pairs
from transformer.text.vocabulary import Vocabulary
from transformer.tracking.progress import Progress
from transformer.tracking.recorder import TrainingRun
from transformer.training.checkpoints import CheckpointStore, TrainingState
from transformer.training.config import TrainConfig
from transformer.training.distributed import World
from transformer.training.launch import launch, stop_signals
from transformer.training.loop import Interrupted, Observers, train
from transformer.training.train_step import Trainer, seed_everything


def spread(module: str, processes: str) -> None:
    """Where several processes are asked for and this is none of them: run the stage in them and exit as they do."""
    if processes != "1" and "WORLD_SIZE" not in os.environ:
        sys.exit(launch(module, processes, sys.argv[1:]))


@dataclass(frozen=True)
class Training:
    """A training: the same one keeps its states in the same `work/train-<key>/`, at any world size.

    ids: of train and valid. more: a folder with the pairs to train on in place of those of ids. start: a model folder
    to go on from. backwards: from target to source.
    """

    params: Params
    max_steps: int
    ids: Path
    vocab: Path
    more: Path | None = None
    start: Path | None = None
    backwards: bool = False

    @cached_property
    def card(self) -> dict[str, Any]:
        """What the stages before say of the corpus."""
        return json.loads((self.ids / "corpus.json").read_text(encoding="utf-8"))

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Of both sides."""
        return Vocabulary.load(self.vocab)

    @cached_property
    def model_config(self) -> TransformerConfig:
        """Sizes of the model."""
        return self.params.take(TransformerConfig, vocabulary=len(self.vocabulary),
                                max_positions=self.card["max_length"] + 1)  # fmt: skip

    @cached_property
    def config(self) -> TrainConfig:
        """Settings of the training."""
        return self.params.take(TrainConfig, max_steps=self.max_steps)

    @cached_property
    def key(self) -> str:
        """One hash over everything that the states depend on; max_steps is not part of it."""
        settings = asdict(self.config)
        del settings["max_steps"]
        return content_key(
            **asdict(self.model_config), **settings, start=self.start and sha256(self.start / "weights.safetensors"),
            code=code_key(), ids=sha256(self.ids), more=self.more and sha256(self.more),
            vocabulary_file=sha256(self.vocab), backwards=self.backwards,
        )  # fmt: skip

    @property
    def train_key(self) -> str:
        """One hash over all that the finished training depends on."""
        return content_key(training=self.key, max_steps=self.max_steps)

    def pairs(self, split: str) -> Pairs:
        """The pairs of a split, as this training sees them."""
        pairs = Pairs.load(self.more if self.more and split == "train" else self.ids, split)
        return pairs.backwards() if self.backwards else pairs

    def run(self, here: World, row: TrainingRun | None = None) -> tuple[CheckpointStore, TrainingState]:
        """Train this process's part, to the end. A signal to stop saves the state and raises SystemExit."""
        stop = stop_signals()
        torch.use_deterministic_algorithms(self.params.deterministic)
        seed_everything(self.params.seed)
        model = Transformer(self.model_config)
        if self.start is not None:
            warm_start(model, self.start, self.vocab)
        trainer = Trainer(model, self.pairs("train"), self.pairs("valid"), here, self.config)
        folder = project_root() / "work" / f"train-{self.key[:16]}"
        folder.mkdir(parents=True, exist_ok=True)
        threads = 0 if here.device.type == "cuda" else here.size * torch.get_num_threads()
        with (
            alone(folder / "lock") if here.leads else nullcontext(),
            cores(threads) if here.leads and threads else nullcontext(),
        ):
            here.from_leader(None)  # nobody goes on before the leader holds the locks
            store = CheckpointStore(folder, self.params.keep)
            with row if row and here.leads else nullcontext() as tracked:
                progress = Progress(self.max_steps, here.leads, tracked)
                if self.params.precision == "bfloat16" and trainer.model.compute is None:
                    progress.say("in float32: this machine has no instructions for bfloat16, which would be slower")
                observers = Observers(
                    on_rows=progress.show,
                    on_update=lambda step, update: progress.updated(step, update.tokens, update.gradient_norm),
                    wants_stop=lambda: bool(stop),
                )
                try:
                    state = train(trainer, store, self.vocabulary.text, observers)
                except Interrupted as reason:
                    progress.say(str(reason))
                    raise SystemExit(128 + (stop or [signal.SIGTERM])[0]) from None
                finally:
                    progress.close()
        return store, state
