"""The states that a training resumes from, on disk (safetensors and JSON, never pickles), and the stage's output.

A training keeps these files in its folder:
    weights-<step>.safetensors, optimiser-<step>.safetensors    tensors
    state-<step>.json    written last: losses, validations, and the sha256 of every file that the state needs
A state is used only if all these files are complete. A training that is killed at any moment therefore loses at most
the updates since its last save.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from transformer.files import UnreadableInput, read_json, sha256, sha256_text, whole_file, write_json
from transformer.model.weights import save_weights
from transformer.model_folder import FORMAT

Row = dict[str, float | int | None]
DERIVED = ("curve", "checkpoints", "stopped_early")


@dataclass
class TrainingState:
    """The state of a training after update `step`. The next update depends on it, on the weights and on the moments.

    losses, tokens: of each update since the first, the smoothed loss (nats, summed over its target tokens) and how many
    target tokens it had. validations: step -> loss (nats per target token) and, if best_by is bleu, bleu. samples:
    step -> the translations of a few validation sentences (validation.py). files: name -> sha256 of every file that the
    state needs. environments: the different ones that made its updates, each name -> fact. end: whether this is the
    last state of a finished training, which is kept until `make clean`.

    These follow from the fields above and from log_every, save_every, keep, patience and best_by (training/replay.py),
    and are not written. curve: the rows of training.csv. checkpoints: step of each kept checkpoint -> its score, lower
    is better (replay.score). stopped_early: whether `patience` ended the training.
    """

    step: int = 0
    losses: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    validations: dict[str, dict[str, float]] = field(default_factory=dict)
    samples: dict[str, list[str]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    environments: list[dict[str, str | int]] = field(default_factory=list)
    end: bool = False
    curve: list[Row] = field(default_factory=list)
    checkpoints: dict[str, list[float]] = field(default_factory=dict)
    stopped_early: bool = False

    def written(self) -> dict[str, Any]:
        """The fields that are written to the disk."""
        return {name: value for name, value in vars(self).items() if name not in DERIVED}

    @property
    def target_tokens(self) -> int:
        """The number of target tokens since update 1."""
        return sum(self.tokens)

    @property
    def best_step(self) -> int:
        """The step of the best checkpoint (it is always kept); 0 before the first validation."""
        return best_steps(self.checkpoints)[0] if self.checkpoints else 0

    def summary(self) -> dict[str, float | int | None]:
        """The contents of training.json: updates, tokens, and the last and best losses (nats per target token)."""
        losses = [loss for row in self.curve if (loss := row["valid_loss"]) is not None]
        bleus = [bleu for row in self.curve if (bleu := row.get("valid_bleu")) is not None]
        return {
            "steps": self.step,
            "target_tokens": self.target_tokens,
            "train_loss": self.curve[-1]["train_loss"],
            "valid_loss": losses[-1],
            "valid_perplexity": math.exp(losses[-1]),
            "best_step": self.best_step,
            "best_valid_loss": min(losses),
            "best_valid_perplexity": math.exp(min(losses)),
            **({"best_valid_bleu": max(bleus)} if bleus else {}),
        }


class CheckpointStore:
    """The folder that a training resumes from.

    It holds these states: the two newest; the two newest up to the step that was just saved, because a shorter training
    may follow a longer one; and the last state of each finished max_steps. With each state it holds the checkpoints of
    that state.
    """

    def __init__(self, folder: Path | str):
        self.folder = Path(folder)
        self.last_step = 0  # the step of the state that the training wrote or read last
        self.folder.mkdir(parents=True, exist_ok=True)

    @staticmethod
    def weights_name(step: int) -> str:
        """The name of the file of the weights after update `step`."""
        return f"weights-{step:08d}.safetensors"

    def weights(self, step: int) -> Path:
        """The path of the weights after update `step`."""
        return self.folder / self.weights_name(step)

    def _optimiser(self, step: int) -> Path:
        return self.folder / f"optimiser-{step:08d}.safetensors"

    def _state(self, step: int) -> Path:
        return self.folder / f"state-{step:08d}.json"

    def states(self, max_steps: int, damaged: list[Path] | None = None) -> Iterator[TrainingState]:
        """The complete states with step <= max_steps, newest first. damaged: gets the paths of the others."""
        for path in sorted(self.folder.glob("state-*.json"), reverse=True):
            if int(path.stem.removeprefix("state-")) > max_steps:
                continue
            state = self._read(path)
            if state is not None:
                yield state
            elif damaged is not None:
                damaged.append(path)

    def _read(self, path: Path) -> TrainingState | None:
        """The state in a file; None if the file, or one that the state needs, is missing or has another sha256."""
        if (state := self._read_unchecked(path)) is None:
            return None
        try:
            complete = all(sha256(self.folder / name) == digest for name, digest in state.files.items())
        except FileNotFoundError:  # any other error may be over when the stage is run again
            return None
        return state if complete else None

    def save(self, state: TrainingState, weights: dict[str, Tensor], optimiser: dict[str, Tensor]) -> None:
        """Write a state: its tensors, then its JSON file. Older files are removed when all of it is on the disk."""
        for path, tensors in ((self.weights(state.step), weights), (self._optimiser(state.step), optimiser)):
            save_weights(tensors, path, durable=True)
            state.files[path.name] = sha256(path)
        kept = {self.weights(int(step)).name for step in state.checkpoints}
        kept |= {self.weights(state.step).name, self._optimiser(state.step).name}
        state.files = {name: digest for name, digest in state.files.items() if name in kept}
        self.write(state)
        self._prune(state.step)

    def write(self, state: TrainingState) -> None:
        """Write the JSON file of a state whose tensors are already on the disk."""
        record = {"format": FORMAT, "sha256": _digest(state.written()), "state": state.written()}
        with whole_file(self._state(state.step), durable=True) as temporary:
            temporary.write_text(json.dumps(record, indent=1), encoding="utf-8")

    def _prune(self, step: int) -> None:
        """Remove the states that the class does not keep, then every tensor file that no remaining state needs."""
        paths = sorted(self.folder.glob("state-*.json"))
        states = {path: self._read_unchecked(path) or TrainingState() for path in paths}
        newest = paths[-2:] + [path for path in paths if path <= self._state(step)][-2:]
        kept = [path for path in paths if path in newest or states[path].end]
        for path in paths:
            if path not in kept:
                path.unlink()
        needed = {name for path in kept for name in states[path].files}
        for path in list(self.folder.iterdir()):
            if path.suffix in (".safetensors", ".tmp") and path.name not in needed:  # .tmp: of a killed process
                path.unlink()

    @staticmethod
    def _read_unchecked(path: Path) -> TrainingState | None:
        """The state in a file, without a look at the files that it needs; None if this file is missing or damaged."""
        try:
            record = read_json(path)
        except (FileNotFoundError, UnreadableInput):
            return None
        whole = isinstance(record, dict) and record.keys() == {"format", "sha256", "state"}
        if not whole or record["format"] != FORMAT or record["sha256"] != _digest(record["state"]):
            return None
        return TrainingState(**record["state"])

    def load(self, state: TrainingState) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The weights and the optimiser tensors of a state."""
        return load_file(self.weights(state.step)), load_file(self._optimiser(state.step))


def best_steps(checkpoints: dict[str, list[float]]) -> list[int]:
    """The steps of TrainingState.checkpoints, best first; of equally good ones the earlier first."""
    return sorted(map(int, checkpoints), key=lambda step: (checkpoints[str(step)], step))


def _digest(written: dict[str, Any]) -> str:
    """The sha256 of the fields of a state that are written."""
    return sha256_text(json.dumps(written, sort_keys=True))


def copy_checkpoints(store: CheckpointStore, state: TrainingState, folder: Path, description: dict) -> None:
    """Copy the kept checkpoints of a finished training to `folder`, and write checkpoints.json and model.json.

    description: the contents of model.json. "scores" in checkpoints.json: see TrainingState.checkpoints.
    """
    for step in state.checkpoints:
        shutil.copyfile(store.weights(int(step)), folder / f"{int(step):08d}.safetensors")
    record = {"format": FORMAT, "last": state.step, "best": state.best_step, "scores": state.checkpoints}
    write_json(folder / "checkpoints.json", record)
    write_json(folder / "model.json", description)
