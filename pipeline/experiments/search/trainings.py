"""The trainings of a search, run by DVC as experiments, and their scores."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import psutil

from pipeline.experiments.clones import clone, end, publish, reference, reproduce
from pipeline.experiments.revisions import Experiment
from pipeline.experiments.search.rung import FILE, environment
from pipeline.experiments.search.space import Value, written
from pipeline.git import command, experiments
from pipeline.knobs import restore
from pipeline.params import Params
from transformer.training.config import SOME_BLEU

STAGE_FAILED = b", exited with 1\n"  # DVC's words for a stage that ended with an error; see stage.run
NOT_BY_KNOBS = (b"error: The disk of ", b"Install the recorded versions")  # errors that stop the search; see stage.py
CLONES = "clones"
NO_SCORE = 0.0  # of a training that diverged or failed, or whose knobs exclude each other


class Untrainable(Exception):
    """Raised for an experiment that its values make fail: a loss that is not finite, knobs that exclude each other."""


@dataclass(frozen=True)
class Trainings:
    """The trainings of a search. Each is an experiment of DVC in a clone, so the work tree may be edited meanwhile.

    folder: of the search, in work/. name: what the names of its experiments begin with. params: those of params.yaml.
    commit, edits: HEAD, and what the work tree had changed when this process started; see `clone`.
    """

    folder: Path
    name: str
    params: Params
    commit: str
    edits: bytes

    def experiment(self, number: int) -> str:
        """The name of the experiment of a trial."""
        return f"{self.name}-{number:02d}"

    def score(self, number: int, knobs: Mapping[str, Value], updates: int) -> float:
        """Train a trial up to a rung, on the last rung with all stages; return its score, higher is better.

        The score is the BLEU of valid. Below the last rung it is of the greedy translations of the training, and where
        it is below SOME_BLEU, a number below 1 that falls with the loss.
        """
        values, name = {**knobs, "best_by": "bleu"}, self.experiment(number)
        try:
            if updates == self.params.max_steps:
                done = self.finished(name, values)
                loss = json.loads(done.text("reports/training.json"))["valid_loss"]
                found = score_of([{"valid_bleu": done.scores()["valid_bleu"], "valid_loss": loss}])
            else:
                found = score_of(self.partial(name, values, updates))
        except Untrainable as reason:
            print(f"{name}: {reason}", flush=True)
            found = NO_SCORE
        shown = " ".join(f"{knob}={written(value)}" for knob, value in knobs.items())
        print(f"{name}  {shown}  score {found:.2f} after {updates} updates", flush=True)
        return found

    def partial(self, name: str, values: Mapping[str, Value], updates: int) -> list[dict]:
        """The rows of the curve of a training up to a rung. Raises Untrainable."""
        self.checked(values)
        with self.ran(name, values, updates, "train") as (folder, rows):
            if rows is not None:
                return rows
            # DVC's cache had the training, so the stage did not run.
            text = command("git", "show", f"{reference(self.commit, name)}:reports/training.csv", folder=folder)
        curve = pd.read_csv(io.StringIO(text)).astype(object)
        rows = curve.where(curve.notna(), None).to_dict("records")
        return [row for row in rows if row["step"] <= updates]

    def finished(self, name: str, values: Mapping[str, Value]) -> Experiment:
        """The experiment with these values, all stages run; it is run unless there is one. Raises Untrainable."""
        params = self.checked(values)
        there = [Experiment(name, found.commit) for found in experiments() if found.name == name]
        for experiment in there:
            if experiment.params == params and not experiment.stale():
                return experiment
        with self.ran(name, values, self.params.max_steps) as (folder, _):
            for found in experiments():
                if found.name == name:  # of another search
                    command("git", "update-ref", "-d", reference(found.baseline, name))
            publish(folder, reference(self.commit, name))
        return Experiment(name)

    def checked(self, values: Mapping[str, Value]) -> Params:
        """The params of an experiment. Raises Untrainable for knobs that exclude each other."""
        try:
            return self.params.changed(**values)
        except ValueError as error:
            reason = str(error).removesuffix(restore(Path("params.yaml"))).strip()
            raise Untrainable(f"it was not trained ({reason})") from None

    @contextmanager
    def ran(
        self, name: str, values: Mapping[str, Value], updates: int, *stages: str
    ) -> Iterator[tuple[Path, list[dict] | None]]:
        """Run an experiment whose training stops at a rung. stages: those to run; none given: all.

        Yields its clone, which is removed after the block, and the rows of the training's curve; None if DVC's cache
        had the training, so that it did not run. Raises Untrainable, and ValueError if something else failed.
        """
        folder, file = self.folder / CLONES / name, self.folder / f"{name}.json"
        file.unlink(missing_ok=True)
        knobs = [word for knob, value in values.items() for word in ("-S", f"{knob}={written(value)}")]
        log = self.folder / f"{name}.log"
        try:
            clone(folder, self.commit, self.edits)
            with log.open("ab") as output:
                before = output.tell()
                status = reproduce(folder, name, [*knobs, *stages], environment(updates, file), output)
            found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
            if "diverged" in found:
                raise Untrainable(found["diverged"])
            if status and not ("curve" in found and updates < self.params.max_steps):
                raise failure(name, log, log.read_bytes()[before:])
            yield folder, found.get("curve")
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def failure(name: str, log: Path, printed: bytes) -> Exception:
    """What to raise for an experiment that failed: Untrainable if a stage could not work with its values."""
    if STAGE_FAILED in printed and not any(words in printed for words in NOT_BY_KNOBS):
        errors = [line for line in printed.decode(errors="replace").split("\n") if "rror: " in line]
        return Untrainable(f"it failed ({errors[0].strip() if errors else f'see {log}'})")
    return ValueError(f"{name} failed, so the search stopped. {log} has its output. Run the same command again.")


def score_of(rows: list[dict]) -> float:
    """The score of a training from its curve: the last BLEU of valid, or a number below 1 that falls with the loss."""
    row = [row for row in rows if row.get("valid_loss") is not None][-1]
    return row["valid_bleu"] if row["valid_bleu"] >= SOME_BLEU else SOME_BLEU / (1 + row["valid_loss"])


def end_processes(folder: Path) -> None:
    """End the processes that a search has started, with SIGTERM: its trainings save their state. folder: of the search.

    A search that was killed leaves them behind.
    """
    end(process for process in psutil.process_iter() if started_in(process, folder))


def started_in(process: psutil.Process, folder: Path) -> bool:
    """Whether a search with this folder has started a process."""
    try:
        file = process.environ().get(FILE)
    except psutil.Error:  # it has ended, or belongs to another user
        return False
    return file is not None and Path(file).parent == folder
