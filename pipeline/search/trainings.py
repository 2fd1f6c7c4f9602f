"""The trainings of a search and their scores.

A trial trains in a clone of its own: DVC runs the stages before `train`, then the stage `train` runs up to each rung in
turn, resuming. DVC runs all stages only for a trial that has come to the last rung. So a trial that was stopped early
leaves no experiment, no checkpoints in DVC's cache and no MLflow run.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pipeline.search.clones import DVC, clone, run_in
from pipeline.search.space import Knobs, yaml_text
from pipeline.workflow.dvc_lock import Result, result_of
from pipeline.workflow.git import command, experiments
from pipeline.workflow.params import Params
from pipeline.workflow.stage import END
from transformer.files import Mistake, Untrainable, content_key, escape_controls, read_json, read_lines, write_json
from transformer.training.config import SOME_BLEU

CLONES = "clones"
CURVES = "curves.db"  # an MLflow database of the search, for the curves of trainings that are no experiments yet


@dataclass(frozen=True)
class Trainings:
    """The trainings of a search.

    folder: of the search, in work/; its name begins the names of experiments. params, commit: those of HEAD.
    """

    folder: Path
    params: Params
    commit: str

    def experiment(self, knobs: Knobs) -> str:
        """The name of the experiment with these knobs."""
        return f"{self.folder.name}-{content_key(**knobs)[:6]}"

    def scores(self, knobs: Knobs, rungs: Sequence[int]) -> Generator[float, None, None]:
        """Train a trial to each rung in turn and yield its score there, higher is better. Raises Untrainable.

        The score is BLEU on valid: of greedy translations at the first rungs, of all stages at the last.
        """
        name, values = self.experiment(knobs), {**knobs, "best_by": "bleu"}
        shown = " ".join(f"{knob}={yaml_text(value)}" for knob, value in knobs.items())
        try:
            with self.prepare(name, values) as folder:
                for updates in rungs:
                    bleu, loss = self.train(folder, name, values, updates)
                    if updates == rungs[-1]:
                        bleu = self.complete(folder, name).scores()["valid_bleu"]
                    print(f"{name}  {shown}  score {score_of(bleu, loss):.2f} after {updates} updates", flush=True)
                    yield score_of(bleu, loss)
        except Untrainable as reason:
            print(f"{name}  {shown}  {reason}", flush=True)
            raise

    def experiment_with(self, name: str, values: Knobs) -> Result:
        """The experiment with these values, all stages run; it is run unless there is one. Raises Untrainable."""
        for entry in experiments():
            if entry.name == name:
                return Result(name, entry.commit)
        with self.prepare(name, values) as folder:
            self.train(folder, name, values, self.params.max_steps)
            return self.complete(folder, name)

    @contextmanager
    def prepare(self, name: str, values: Knobs) -> Iterator[Path]:
        """A clone with these values in params.yaml in which the stages before `train` have run. Raises Untrainable."""
        try:
            self.params.replace(**values)
        except Mistake as error:
            reason = str(error).split(". ")[0]
            raise Untrainable(f"was not trained: {reason}") from None
        (self.folder / CLONES).mkdir(exist_ok=True)
        with TemporaryDirectory(dir=self.folder / CLONES, prefix=f"{name}-", ignore_cleanup_errors=True) as folder:
            project = clone(Path(folder), self.commit)
            knobs = [word for knob, value in values.items() for word in ("-S", f"{knob}={yaml_text(value)}")]
            self.run(project, name, *DVC, "exp", "run", *knobs, "back_translate")
            yield project

    def train(self, folder: Path, name: str, values: Knobs, updates: int) -> tuple[float, float]:
        """Run the stage train in a clone up to an update. Returns BLEU and loss of its last validation.

        Raises Untrainable.
        """
        params = self.folder / f"{name}.json"  # JSON is YAML
        write_json(params, vars(self.params.replace(**values, max_steps=updates)))
        self.run(folder, name, sys.executable, "-m", "pipeline.train", "--params", str(params))
        curve = csv.DictReader(read_lines(folder / "reports/training.csv"))
        last = [row for row in curve if row["valid_loss"]][-1]
        return float(last.get("valid_bleu") or 0), float(last["valid_loss"])

    def complete(self, folder: Path, name: str) -> Result:
        """Run all stages as an experiment, in a clone whose training has ended, and send it to the main checkout."""
        self.run(folder, name, *DVC, "exp", "run", "--name", name)
        command(*DVC, "exp", "push", "--force", "--no-cache", "origin", name, folder=folder)
        return result_of(name)

    def run(self, folder: Path, name: str, *words: str) -> None:
        """Run a command line in a clone; its output goes to the log of the training.

        Raises Untrainable if a stage fails because of these knobs, and Mistake, which stops the search, for another
        end.
        """
        log, end, experiment = self.folder / f"{name}.log", self.folder / f"{name}.end.json", "--name" in words
        store = {} if experiment else {"MLFLOW_TRACKING_URI": f"sqlite:///{self.folder / CURVES}"}
        end.unlink(missing_ok=True)
        with log.open("ab") as output:
            status = run_in(folder, words, output, **{END: str(end)}, **store)
        if not status:
            return
        last = {"reason": last_line(log), "untrainable": False}  # of a process that was killed, or of DVC
        failure = read_json(end) if end.is_file() else last
        if failure["untrainable"]:
            raise Untrainable(f"failed: {failure['reason']}")
        raise Mistake(
            f"{name} ended with status {status}: {failure['reason']} The search stopped ({log} has the output). Put "
            "this right, then the same command goes on."
        )


def last_line(log: Path) -> str:
    """The last line of a log that is not blank."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return escape_controls(next((line for line in reversed(lines) if line.strip()), "nothing was printed."))


def score_of(bleu: float, loss: float) -> float:
    """The score of a training: the BLEU of valid or, if that is noise, a number below 1 that falls with the loss."""
    return bleu if bleu >= SOME_BLEU else SOME_BLEU / (1 + loss)
