"""Weights on disk (safetensors, never pickles), the state that training resumes from, averaging, the model folder.

A training keeps in its folder, flat:
    weights-<step>.safetensors, optimiser-<step>.safetensors    tensors
    state-<step>.json    written last: counters, the curve so far, and the sha256 of every file it stands on
A state counts only if all those files are there and unharmed, so a kill at any instant costs at most the last interval.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from transformer.files import sha256, sha256_text, whole_file
from transformer.model.weights import save_weights
from transformer.model_folder import FORMAT

Row = dict[str, float | int | None]


@dataclass
class TrainingState:
    """Where a training stands after update `step`; with weights and moments all that the next update depends on."""

    step: int = 0
    curve: list[Row] = field(default_factory=list)  # the rows of training.csv
    loss_sum: float = 0.0  # nats, and
    loss_tokens: int = 0  # target tokens since the last row of the curve
    target_tokens: int = 0  # seen since update 1
    stopped_early: bool = False
    # step -> what the weights kept are worth, less is better: validation loss (nats per target token) or minus BLEU
    checkpoints: dict[str, float] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)  # name -> sha256 of every file this state stands on
    end: bool = False  # the end of a finished training: kept until `make clean`

    def count(self, tokens: int) -> None:
        """Count one more update, over so many target tokens."""
        self.step += 1
        self.loss_tokens += tokens
        self.target_tokens += tokens

    @property
    def best_step(self) -> int:
        """The step of the best checkpoint, which is always kept; 0 before the first validation."""
        return best_steps(self.checkpoints)[0] if self.checkpoints else 0

    def summary(self) -> dict[str, float | int | None]:
        """Losses (nats per target token) and perplexities, last and best, updates and tokens of a finished training."""
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
    """The folder a training resumes from.

    It holds the two newest states of all and up to the present step (a shorter training may follow a longer one), the
    last state of each finished length, and of each of these states the last `keep` and the best `keep` checkpoints.
    """

    def __init__(self, folder: Path, keep: int):
        self.folder, self.keep = folder, keep
        folder.mkdir(parents=True, exist_ok=True)

    def weights(self, step: int) -> Path:
        """Where the weights after update `step` are."""
        return self.folder / f"weights-{step:08d}.safetensors"

    def _optimiser(self, step: int) -> Path:
        return self.folder / f"optimiser-{step:08d}.safetensors"

    def _state(self, step: int) -> Path:
        return self.folder / f"state-{step:08d}.json"

    def newest(self, max_steps: int) -> TrainingState | None:
        """The newest unharmed state with step <= max_steps; harmed ones are named on standard error and passed over."""
        for path in sorted(self.folder.glob("state-*.json"), reverse=True):
            if int(path.stem.removeprefix("state-")) > max_steps:
                continue
            state = self._read(path)
            if state is not None:
                return state
            print(f"{path} or a file it names is damaged; using the state before it", file=sys.stderr)
        return None

    def _read(self, path: Path) -> TrainingState | None:
        """The state in a file, or None if it or any file it stands on is missing or has another sha256."""
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            state = TrainingState(**record["state"])
            intact = record["format"] == FORMAT and record["sha256"] == _digest(state)
            intact = intact and all(sha256(self.folder / name) == digest for name, digest in state.files.items())
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return state if intact else None

    def save(self, state: TrainingState, weights: dict[str, Tensor], optimiser: dict[str, Tensor]) -> None:
        """Write a state so that it is on the disk, whole, before anything older is removed."""
        for path, tensors in ((self.weights(state.step), weights), (self._optimiser(state.step), optimiser)):
            with whole_file(path, durable=True) as temporary:
                save_file(tensors, temporary)
            state.files[path.name] = sha256(path)
        kept = {self.weights(step).name for step in self._trim(state)}
        kept |= {self.weights(state.step).name, self._optimiser(state.step).name}
        state.files = {name: digest for name, digest in state.files.items() if name in kept}
        self.write(state)
        self._prune(state.step)

    def _trim(self, state: TrainingState) -> list[int]:
        """Forget checkpoints that are neither among the last `keep` nor among the best; the steps that stay."""
        steps = sorted(int(step) for step in state.checkpoints)
        stay = sorted({*steps[-self.keep :], *best_steps(state.checkpoints)[: self.keep]})
        state.checkpoints = {str(step): state.checkpoints[str(step)] for step in stay}
        return stay

    def write(self, state: TrainingState) -> None:
        """Write the JSON file of a state whose tensors are on the disk."""
        record = {"format": FORMAT, "sha256": _digest(state), "state": asdict(state)}
        with whole_file(self._state(state.step), durable=True) as temporary:
            temporary.write_text(json.dumps(record, indent=1), encoding="utf-8")

    def _prune(self, step: int) -> None:
        """Remove states that the class does not promise, then every file that no remaining state stands on."""
        paths = sorted(self.folder.glob("state-*.json"))
        states = {path: self._read_unchecked(path) for path in paths}
        newest = paths[-2:] + [path for path in paths if path <= self._state(step)][-2:]
        stay = [path for path in paths if path in newest or states[path].end]
        for path in paths:
            if path not in stay:
                path.unlink()
        needed = {name for path in stay for name in states[path].files}
        for path in self.folder.glob("*.safetensors*"):
            if path.name not in needed:
                path.unlink()

    @staticmethod
    def _read_unchecked(path: Path) -> TrainingState:
        try:
            return TrainingState(**json.loads(path.read_text(encoding="utf-8"))["state"])
        except (ValueError, KeyError, TypeError):
            return TrainingState()  # damaged: needs nothing, is removed in its turn

    def load(self, state: TrainingState) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Weights and optimiser tensors of a state."""
        return load_file(self.weights(state.step)), load_file(self._optimiser(state.step))

    def average(self, state: TrainingState) -> dict[str, Tensor]:
        """The moving average of the weights in a state; empty if the training keeps none."""
        prefix = "average."
        with safe_open(self._optimiser(state.step), framework="pt") as file:
            return {name.removeprefix(prefix): file.get_tensor(name) for name in file.keys() if name.startswith(prefix)}  # noqa: SIM118


def best_steps(checkpoints: dict[str, float]) -> list[int]:
    """Steps of checkpoints, the best first; of equal ones the earlier."""
    return sorted(map(int, checkpoints), key=lambda step: (checkpoints[str(step)], step))


def _digest(state: TrainingState) -> str:
    """sha256 over everything a state says."""
    return sha256_text(json.dumps(asdict(state), sort_keys=True))


def copy_checkpoints(store: CheckpointStore, state: TrainingState, folder: Path, card: dict) -> None:
    """Put the kept checkpoints of a finished training into `folder`, with checkpoints.json and model.json.

    The moving average of the weights, if there is one, becomes average.safetensors.
    """
    for step in state.checkpoints:
        shutil.copyfile(store.weights(int(step)), folder / f"{int(step):08d}.safetensors")
    if average := store.average(state):
        save_weights(average, folder / "average.safetensors")
    record = {"format": FORMAT, "last": state.step, "best": state.best_step, "worth": state.checkpoints}
    (folder / "checkpoints.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    (folder / "model.json").write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
