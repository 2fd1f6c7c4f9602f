"""The trainings of a search, run by DVC as experiments, and their scores."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import psutil
from filelock import FileLock

from pipeline.shared.git import command, experiments
from pipeline.shared.knobs import restore
from pipeline.shared.params import Params
from pipeline.shared.results import Experiment
from pipeline.shared.search.rung import FILE, environment
from pipeline.shared.search.space import Value, written
from pipeline.shared.stage import project_root
from transformer.training.config import SOME_BLEU

BUSY = b"is busy, it is being blocked by"  # DVC's words while another experiment of the project starts or ends
STARTED = b"Reproducing experiment"  # DVC's words once it has an experiment from its stack
STARTING = "search-start.lock"
ATTEMPTS = 20
SECONDS_TO_SAVE = 300  # for a training that is asked to stop
NO_SCORE = 0.0  # of a training that diverged, or whose knobs exclude each other


class Untrainable(Exception):
    """Raised for a training whose loss is not finite, or whose knobs exclude each other."""


@dataclass(frozen=True)
class Trainings:
    """The trainings of a search. Each is an experiment of DVC in a temporary copy of what git has.

    folder: of the search, in work/. name: what the names of its experiments begin with. params: those of params.yaml.
    """

    folder: Path
    name: str
    params: Params

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
        self.check(values)
        rows = self.run(name, values, updates, "train")
        if rows is not None:
            return rows
        # DVC's cache had the training, so the stage did not run. DVC then made an experiment that is only trained.
        curve = pd.read_csv(io.StringIO(Experiment(name).text("reports/training.csv"))).astype(object)
        rows = curve.where(curve.notna(), None).to_dict("records")
        self.forget(name)
        return [row for row in rows if row["step"] <= updates]

    def finished(self, name: str, values: Mapping[str, Value]) -> Experiment:
        """The experiment with these values, all stages run; it is run unless there is one. Raises Untrainable."""
        self.check(values)
        if is_there(name) and Experiment(name).stale():  # only trained
            self.forget(name)
        if not is_there(name):
            self.run(name, values, self.params.max_steps)
        return Experiment(name)

    def check(self, values: Mapping[str, Value]) -> None:
        """Raise Untrainable for knobs that exclude each other."""
        try:
            self.params.changed(**values)
        except ValueError as error:
            reason = str(error).removesuffix(restore(Path("params.yaml"))).strip()
            raise Untrainable(f"it was not trained ({reason})") from None

    def run(self, name: str, values: Mapping[str, Value], updates: int, *stages: str) -> list[dict] | None:
        """Run an experiment whose training stops at a rung. stages: those to run; none given: all.

        Returns the rows of the training's curve; None if DVC's cache had the training, so that it did not run. Raises
        Untrainable, and ValueError if a stage failed.
        """
        file, log = self.folder / f"{name}.json", self.folder / f"{name}.log"
        file.unlink(missing_ok=True)
        knobs = [word for knob, value in values.items() for word in ("-S", f"{knob}={written(value)}")]
        for _ in range(ATTEMPTS):
            status, printed = reproduced(name, [*knobs, *stages], environment(updates, file), log)
            if not (status and BUSY in printed):
                break
        found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        if "diverged" in found:
            raise Untrainable(found["diverged"])
        stopped = "curve" in found and updates < self.params.max_steps
        if status and not stopped:
            raise ValueError(f"{name} failed, so the search stopped. {log} has its output. Run the same command again.")
        if not status and stopped:
            self.forget(name)
        return found.get("curve")

    def forget(self, name: str) -> None:
        """Remove an experiment that is only trained."""
        if is_there(name):
            command(sys.executable, "-m", "dvc", "exp", "remove", name)


def reproduced(name: str, options: Sequence[str], variables: Mapping[str, str], log: Path) -> tuple[int, bytes]:
    """Run an experiment in a temporary copy. Returns the exit status of DVC, and what it has added to the file `log`.

    Experiments start one after the other: DVC puts an experiment on a stack, lets go of its lock, and then takes the
    top one from the stack, which could be that of another process.
    """
    words = [sys.executable, "-m", "dvc", "--wait-for-lock", "exp", "run", "--temp", "--name", name, *options]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    env = os.environ | variables | {"PATH": path, "PYTHONUNBUFFERED": "1"}
    before = log.stat().st_size if log.exists() else 0
    with log.open("ab") as output, FileLock(project_root() / "work" / STARTING) as lock:
        process = subprocess.Popen(words, env=env, stdout=output, stderr=subprocess.STDOUT)
        while process.poll() is None and STARTED not in log.read_bytes()[before:]:
            time.sleep(0.1)
        lock.release()
        status = process.wait()
    return status, log.read_bytes()[before:]


def is_there(name: str) -> bool:
    """Whether there is an experiment of this name."""
    return any(found.name == name for found in experiments())


def score_of(rows: list[dict]) -> float:
    """The score of a training from its curve: the last BLEU of valid, or a number below 1 that falls with the loss."""
    row = [row for row in rows if row.get("valid_loss") is not None][-1]
    return row["valid_bleu"] if row["valid_bleu"] >= SOME_BLEU else SOME_BLEU / (1 + row["valid_loss"])


def end_processes(folder: Path) -> None:
    """End the processes that a search has started, with SIGTERM: its trainings save their state. folder: of the search.

    A search that was killed leaves them behind.
    """
    found = [process for process in psutil.process_iter() if started_in(process, folder)]
    for process in found:
        try:
            process.terminate()
        except psutil.NoSuchProcess:
            continue
    for process in psutil.wait_procs(found, SECONDS_TO_SAVE)[1]:
        process.kill()


def started_in(process: psutil.Process, folder: Path) -> bool:
    """Whether a search with this folder has started a process."""
    try:
        file = process.environ().get(FILE)
    except psutil.Error:  # it has ended, or belongs to another user
        return False
    return file is not None and Path(file).parent == folder
