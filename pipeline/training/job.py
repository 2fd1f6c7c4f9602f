"""A training with its knobs and data: what it depends on, as one hash, and the objects that train."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.training.identity import code_keys
from pipeline.workflow.params import Params
from pipeline.workflow.stage import project_root
from pipeline.workflow.versions import installed_version
from transformer.evaluation.bleu import bleu_tokenizer
from transformer.files import content_key, read_json, read_lines, sha256
from transformer.model.config import TransformerConfig
from transformer.model.transformer import Transformer
from transformer.model.weights import check_start, warm_start
from transformer.text.pairs import Pairs
from transformer.text.vocabulary import Vocabulary
from transformer.training.checkpoints import TrainingState
from transformer.training.config import TrainConfig
from transformer.training.distributed import World, prepare_process
from transformer.training.replay import CHANGES_NO_UPDATE, identity_of
from transformer.training.train_step import Trainer, seed_everything
from transformer.training.validation import ValidText, table

CODE = ("transformer/training/loop.py", "pipeline/training/job.py")  # with all that they import


@dataclass(frozen=True)
class TrainingJob:
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
        return read_json(self.ids / "corpus.json")

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
        """Everything that an update depends on: part -> name -> value or hash. See also CHANGES_NO_UPDATE."""
        tokens = bleu_tokenizer(self.target_language)[0] if self.config.best_by == "bleu" else "13a"
        judges = ("sacrebleu",) if self.config.best_by == "bleu" else ()
        files = {
            "ids": self.ids,
            "train_ids": self.train_ids,
            "vocabulary": self.vocab,
            "init_from": self.initial_model and self.initial_model / "weights.safetensors",
        }
        # BLEU falls back to characters where sacreBLEU lacks a file: other tokens are another training.
        data = {name: path and sha256(path) for name, path in files.items()} | {"bleu_tokens": tokens}
        identity = identity_of(self.config, self.model_config, data)
        identity["knobs"] |= {"backwards": self.backwards}
        versions = {name: installed_version(name) for name in ("numpy", "torch", *judges)}
        return {**identity, "code": code_keys(*CODE), "versions": versions}

    @cached_property
    def key(self) -> str:
        """One hash of everything that an update depends on."""
        return content_key(**self.identity)

    @property
    def train_key(self) -> str:
        """One hash of everything that the finished training depends on."""
        settings = asdict(self.config)
        return content_key(training=self.key, **{name: settings[name] for name in CHANGES_NO_UPDATE})

    @property
    def folder(self) -> Path:
        """The folder of the states."""
        return project_root() / "work" / f"train-{self.key[:16]}"

    def check(self) -> None:
        """Raise Mistake for data or a model to start from that this training cannot use."""
        for split in ("train", "valid"):
            self.pairs(split).check_lengths(split, self.config.device_tokens)
        if self.initial_model is not None:
            check_start(self.model_config, self.initial_model, self.vocab)

    def pairs(self, split: str) -> Pairs:
        """The pairs of a split (train or valid), in the direction of the training."""
        pairs = Pairs.load(self.train_ids if self.train_ids and split == "train" else self.ids, split)
        return pairs.swap() if self.backwards else pairs

    def trainer(self, world: World) -> Trainer:
        """The trainer of this process, with initial weights. The process is set up for training."""
        prepare_process(self.config.deterministic)
        seed_everything(self.config.seed)
        model = Transformer(self.model_config)
        if self.initial_model is not None:
            warm_start(model, self.initial_model, self.vocab)
        return Trainer(model, self.pairs("train"), self.pairs("valid"), world, self.config)

    @property
    def target_language(self) -> str:
        """The language that the model writes: that of the targets, or of the sources if it is trained backwards."""
        return self.corpus["source" if self.backwards else "target"]

    def valid_text(self) -> ValidText:
        """The text of the validation pairs, in the direction of the training."""
        sides = ("target", "source") if self.backwards else ("source", "target")
        sources, references = (list(read_lines(self.ids / f"valid.{side}.txt")) for side in sides)
        return ValidText(self.vocabulary.text, sources, references, self.target_language)

    def samples(self, state: TrainingState) -> str:
        """The samples of a state as CSV."""
        return table(state.samples, self.pairs("valid").source_lengths, self.valid_text(), self.config.save_every)
