"""An edit at any moment of a pipeline: the stage fails, or the run names what made the result."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pipeline.earlier_stages import stages_above
from support.projects import command, prepared_project, runs
from support.tiny import ROOT

from pipeline.tracking.content import MADE
from pipeline.workflow.params import parse_yaml
from pipeline.workflow.stage import params_of, read_values

CODE = ("pipeline", "transformer")


class Attempt(NamedTuple):
    """One `dvc repro`. reads: stage that succeeded -> path and content of each file that it opened."""

    output: str
    succeeded: bool
    edited: bool
    reads: dict[str, list[tuple[str, str]]]


class Edited:
    """A project that is edited while it runs, and what each entry of dvc.lock was made from.

    elsewhere: the share of edits that need not be of what the running stage takes.
    """

    def __init__(self, folder: Path, place: Path, seed: int, elsewhere: float) -> None:
        self.folder, self.place, self.chance, self.elsewhere = folder, place, random.Random(seed), elsewhere
        self.made_from: dict[str, list[tuple[str, str]]] = {}  # entry of dvc.lock -> what its stage opened
        self.opened = {"download": 300, "translate": 150, "report": 60}  # first stage -> files that its run opens

    def make_stale(self, stage: str) -> None:
        """Commit an edit after which this stage and the later ones run: download, translate or report."""
        name, old, new = {
            "download": ("own/train.de", r"^\w+", self.chance.choice(["zwei", "drei", "vier"])),
            "translate": ("params.yaml", r"(?m)^beam_size: \d+", f"beam_size: {self.chance.randrange(5, 64)}"),
            "report": ("pipeline/report.py", r"\Z", f"# {self.chance.random()}\n"),
        }[stage]
        path = self.folder / name
        path.write_text(re.sub(old, new, path.read_text(encoding="utf-8"), count=1), encoding="utf-8")
        command(self.folder, "git", "commit", "-qam", "another beginning", "--allow-empty")

    def edit(self, stage: Mapping[str, Any]) -> tuple[str, str]:
        """A file and its content after a random edit: of a knob, code or data that a stage takes, or of any other."""
        params = read_values(self.folder / "params.yaml")
        knobs = {name for file, names in params_of(stage) if file == "params.yaml" for name in names} or set(params)
        deps = [dep for dep in stage["deps"] if dep.startswith(CODE)]
        if self.chance.random() < self.elsewhere:
            knobs, deps = set(params), [*CODE, "own"]
        numbers = sorted(name for name in knobs if not isinstance(params[name], str))
        if numbers and self.chance.random() < 0.5:
            name = self.chance.choice(numbers)
            value = not params[name] if isinstance(params[name], bool) else params[name] + 1
            text = (self.folder / "params.yaml").read_text()
            return "params.yaml", re.sub(f"(?m)^{name}: \\S+", f"{name}: {str(value).lower()}", text)
        places = [self.folder / dep for dep in deps]
        paths = [path for place in places for path in (place, *place.rglob("*")) if path.suffix in (".py", ".de")]
        path = self.chance.choice(sorted(paths))
        text = path.read_text(encoding="utf-8")
        text = f"{text}\nEDITED = {self.chance.random()}\n" if path.suffix == ".py" else text.replace("eins", "ein", 1)
        return path.relative_to(self.folder).as_posix(), text

    def repro(self, first: str, edit: bool) -> Attempt:
        """Run the pipeline from a stage on, with a random edit after a random opened file, and check what it left."""
        moment = self.chance.randint(1, self.opened[first]) if edit else 0
        edits = self.place / str(len(list(self.place.iterdir())))
        edits.mkdir()
        stages = read_values(self.folder / "dvc.yaml")["stages"]
        plan = {name: self.edit(stage) for name, stage in stages.items()}
        (edits / "moment").write_text("0")
        (edits / "plan.json").write_text(json.dumps({"moment": moment, **plan}))
        words = {"EDITS": str(edits), "PYTHONPATH": str(ROOT / "tests/support/edits")}
        output = command(self.folder, "dvc", "repro", "record", status=(0, 255), **words)
        ran = set(re.findall(r"Running stage '(\w+)'", output)) - set(re.findall(r"reproduce '(\w+)'", output))
        reads = {
            path.stem: [tuple(json.loads(line)) for line in path.read_text().split("\n") if line]
            for path in edits.glob("*.jsonl")
        }
        edited = (edits / "edited").exists()
        attempt = Attempt(output, "failed to reproduce" not in output, edited, {name: reads[name] for name in ran})
        if attempt.succeeded:
            self.opened[first] = int((edits / "moment").read_text()) or self.opened[first]  # 0: nothing was stale
        self.check(attempt)
        return attempt

    def check(self, attempt: Attempt) -> None:
        """dvc.lock names what each stage read, and a run the params that made its result."""
        lock = read_values(self.folder / "dvc.lock")["stages"]
        for stage, reads in attempt.reads.items():
            self.made_from[json.dumps(lock[stage], sort_keys=True)] = reads
            for name, value in lock[stage].get("params", {}).get("params.yaml", {}).items():
                assert {parse_yaml(text, path)[name] for path, text in reads if path == "params.yaml"} <= {value}, stage
            deps = {dep["path"]: dep["md5"] for dep in lock[stage]["deps"]}
            for path, text in reads:
                assert deps.get(path, md5(text)) == md5(text), (stage, path)
        if not attempt.succeeded:
            assert "error: " in attempt.output
            return
        makers = stages_above(lock, MADE)
        params = read_values(self.folder / "params.yaml")
        config_key = json.loads((self.folder / "data/run.json").read_text())["config_key"]
        (run,) = [run for run in runs(self.folder) if run.data.tags.get("config_key") == config_key]
        for stage, entry in makers.items():
            for path, text in self.made_from.get(json.dumps(entry, sort_keys=True), []):
                if path == "params.yaml":
                    values = parse_yaml(text, path)
                    for name in entry.get("params", {}).get("params.yaml", {}):
                        assert run.data.params[name] == str(values[name]), (stage, name)
                        assert params[name] == values[name], (stage, name)
                elif belongs(path, entry):
                    assert (self.folder / path).read_text(encoding="utf-8") == text, (stage, path)


def md5(text: str) -> str:
    """The md5 of a text, as dvc.lock has it for a file."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def belongs(path: str, entry: dict) -> bool:
    """Whether a file is a dep of a stage, or lies in one."""
    return any(Path(path).is_relative_to(dep["path"]) for dep in entry["deps"])


@pytest.mark.parametrize(
    ("count", "stages", "elsewhere"),
    [
        (6, ("translate", "report", "report"), 0.0),
        pytest.param(60, ("download", "translate", "report"), 0.3, marks=pytest.mark.full),
    ],
)
def test_an_edit_at_any_moment_gives_no_false_run(tmp_path, shared_folder, count, stages, elsewhere):
    """stages: the run begins with one of them, after an edit that was made before."""
    project = Edited(prepared_project(shared_folder, tmp_path / "project"), tmp_path / "edits", count, elsewhere)
    project.place.mkdir()
    edits = 0
    while edits < count:
        first = project.chance.choice(stages)
        project.make_stale(first)
        finished = False
        while not finished:
            attempt = project.repro(first, edits < count)
            edits += attempt.edited
            command(project.folder, "git", "checkout", "--", "params.yaml", *CODE, "own")
            finished = attempt.succeeded
