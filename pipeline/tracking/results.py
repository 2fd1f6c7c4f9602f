"""The results of experiments, commits and the work tree, read from git and DVC's cache without a checkout."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from argparse import Namespace
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path

from pipeline.experiments.provenance import LAST, PROCESSOR, changes, code_of_commit, names, origins, parsed
from pipeline.git import cached, command, git, resolved
from pipeline.identity import code_key
from pipeline.params import Params
from transformer import files
from transformer.evaluation.comparison import System

WORKSPACE = "workspace"
OPTIONS = {
    "params": "params.yaml",
    "raw": "data/raw",
    "hypotheses": "data/hypotheses",
    "model": "data/model",
    "curve": "reports/training.csv",
    "summary": "reports/training.json",
    "scores": "reports/scores.json",
    "signatures": "reports/signatures.json",
    "engines": "reports/engines.json",
    "environment": "reports/environment.json",
    "samples": "reports/samples.csv",
    "page": "reports/report.html",
    "attention": "reports/attention.svg",
}


@cache
def sha256(path: Path) -> str:
    """sha256 of a file that does not change while this process runs."""
    return files.sha256(path)


class Results(ABC):
    """The results of one configuration: files that git holds and outs that DVC holds.

    name: of the experiment, commit, branch or tag, or `workspace`.
    """

    name: str

    @abstractmethod
    def text(self, path: str) -> str:
        """The text of a file that git holds: params, metrics, curves."""

    @abstractmethod
    def folder(self, path: str) -> dict[str, Path]:
        """The files of a folder that DVC holds: name -> a file with its content."""

    @abstractmethod
    def file(self, path: str) -> Path:
        """A file with the content of a file that DVC holds."""

    def lines(self, path: str) -> list[str]:
        """The lines of a text file that DVC holds."""
        return list(files.read_lines(self.file(path)))

    def sha256(self, path: str) -> str:
        """files.sha256 of a file that DVC holds, or of a folder if the path ends in /."""
        if not path.endswith("/"):
            return sha256(self.file(path))
        held = sorted(self.folder(path[:-1]).items())
        return files.sha256_text("".join(f"{sha256(place)}  {name}\n" for name, place in held))

    @cached_property
    def params(self) -> Params:
        """The params of this configuration. Raises ValueError if they are of another version of this project."""
        return Params.parse(self.text("params.yaml"), f"params.yaml of {self.name}", recorded=True)

    def hypotheses(self, split: str = "") -> str:
        """The path of the translations of valid or a test set; default: the first test set."""
        if not self.older:
            return f"data/hypotheses/{split or self.params.test_sets.split()[0]}.hyp"
        return f"data/{'valid' if split == 'valid' else 'test'}.hyp"

    def raw(self, side: str, split: str = "") -> str:
        """The path of the text of valid or a test set; default: the first test set. side: src or tgt."""
        name = "test" if self.older and split != "valid" else split or self.params.test_sets.split()[0]
        return f"data/raw/{name}.{side}"

    @cached_property
    def older(self) -> bool:
        """Whether these results are from before there were several test sets."""
        return "test_sets" not in parsed(self.text("params.yaml"))

    def scores(self) -> dict[str, float]:
        """The scores: name -> value."""
        return json.loads(self.text("reports/scores.json"))

    def training(self) -> dict[str, float]:
        """The summary of the training: updates, tokens, losses."""
        return json.loads(self.text("reports/training.json"))

    def signatures(self) -> dict[str, str]:
        """sacreBLEU's signatures: name of a score -> how it was computed."""
        return json.loads(self.file("reports/signatures.json").read_text(encoding="utf-8"))

    def lock(self) -> dict[str, dict]:
        """dvc.lock: stage -> its command, deps, params and outs."""
        return parsed(self.text("dvc.lock")).get("stages", {})

    @abstractmethod
    def changes(self) -> dict[str, list[str]]:
        """For each stage whose entry in dvc.lock is not that of these files: the deps, params and outs that differ.

        The stage that writes the run is left out: no result depends on it.
        """

    @abstractmethod
    def code(self, path: str) -> dict[str, str]:
        """The Python files at a path, which is a file or a folder: path -> code_key."""

    def stale(self) -> str:
        """What was edited after the last run, or never run, as `stage (names), ...`; empty if nothing was."""
        return ", ".join(f"{stage} ({', '.join(names)})" for stage, names in self.changes().items())

    def check_fresh(self) -> None:
        """Raise ValueError if a stage other than `record` would run again: the scores are not those of these files."""
        if stale := self.stale():
            raise ValueError(
                f"The results of {self.name} are not those of its files. `dvc repro` would run again: {stale}. "
                "Run it (and commit what it writes), then repeat this."
            )

    def engines_agree(self) -> bool | None:
        """Whether compare_engines found that the exports translate as this model; None: not measured on this model."""
        lock = self.lock()
        try:
            (model,) = (out["md5"] for out in lock["average"]["outs"] if out["path"] == "data/model")
            measured = {dep["path"]: dep["md5"] for dep in lock["compare_engines"]["deps"]}
        except (KeyError, ValueError):
            return None
        if measured.get("data/model") != model:
            return None
        return json.loads(self.text("reports/engines.json")).get("engines_agree", True)  # version 0.1 failed otherwise

    def system(self) -> System:
        """As `scored`, with signatures and test translations."""
        return replace(self.scored(), signatures=self.signatures(), hypotheses=self.lines(self.hypotheses()))

    def scored(self) -> System:
        """The name, knobs, scores and origins of this configuration."""
        made_from = origins(self.lock(), self.params.init_from, self.text, self.code)
        return System(self.name, vars(self.params), self.scores(), origins=made_from, machine=self.machine())

    def environment(self) -> dict[str, str | int]:
        """reports/environment.json: what the training ran on; empty if that file is missing."""
        path = "reports/environment.json"
        with suppress(ValueError, OSError):
            return json.loads(self.text(path))
        with suppress(ValueError, OSError, KeyError):  # before version 0.2 DVC held it
            return json.loads(self.file(path).read_text(encoding="utf-8"))
        return {}

    def machine(self) -> dict[str, str]:
        """The facts of the environment on which the rounding of sums depends."""
        return {name: str(value) for name, value in self.environment().items() if name in PROCESSOR}


class WorkTree(Results):
    """The results in a folder.

    places: path in the project -> another place for it. root: the folder of the project.
    """

    def __init__(self, places: Mapping[str, Path] | None = None, root: Path = Path()):
        self.name, self._places, self._root = WORKSPACE, dict(places or {}), root

    @classmethod
    def of_stage(cls, paths: Namespace) -> WorkTree:
        """The results in the places that a stage's command line names."""
        return cls({place: getattr(paths, option) for option, place in OPTIONS.items() if hasattr(paths, option)})

    def text(self, path: str) -> str:
        return self.file(path).read_text(encoding="utf-8")

    def file(self, path: str) -> Path:
        above, _, name = path.rpartition("/")
        return self._places.get(path) or self._places.get(above, self._root / above) / name

    def folder(self, path: str) -> dict[str, Path]:
        return {file.name: file for file in self.file(path).iterdir()}

    def changes(self) -> dict[str, list[str]]:
        status = json.loads(command(sys.executable, "-m", "dvc", "status", "--json", folder=self._root))
        return {stage: list(names(parts)) for stage, parts in status.items() if stage not in LAST}

    def code(self, path: str) -> dict[str, str]:
        place = self._root / path
        found = [place] if place.is_file() else sorted(place.rglob("*.py"))
        return {
            file.relative_to(self._root).as_posix(): code_key(file.read_text(encoding="utf-8"))
            for file in found
            if file.suffix == ".py"
        }


class Experiment(Results):
    """The results of one experiment, commit, branch or tag.

    name: what a person calls it. commit: its hash; resolved from the name if it is not given.
    """

    def __init__(self, name: str, commit: str = ""):
        self.name, self.commit = name, commit or resolved(name)

    @cached_property
    def hashes(self) -> dict[str, str]:
        """The outs in dvc.lock: path -> md5, which names its content in DVC's cache."""
        outs = [out for stage in self.lock().values() for out in stage.get("outs", [])]
        return {out["path"]: out["md5"] for out in outs}

    def text(self, path: str) -> str:
        try:
            return git("show", f"{self.commit}:{path}")
        except ValueError:
            raise ValueError(f"{self.name} has no {path} in git. Run `dvc exp run`, or commit the file.") from None

    def changes(self) -> dict[str, list[str]]:
        return changes(self.commit, self.text)

    def code(self, path: str) -> dict[str, str]:
        return code_of_commit(self.commit, path)

    def file(self, path: str) -> Path:
        if path in self.hashes:
            return self._cached(self.hashes[path], path)
        above, _, name = path.rpartition("/")
        return self.folder(above)[name]

    def folder(self, path: str) -> dict[str, Path]:
        listing = json.loads(self._cached(self.hashes.get(path, ""), path).read_text(encoding="utf-8"))
        return {one["relpath"]: self._cached(one["md5"], f"{path}/{one['relpath']}") for one in listing}

    def _cached(self, digest: str, path: str) -> Path:
        place = cached(digest)
        if not digest or not place.is_file():
            raise ValueError(
                f"{path} of {self.name} is not in DVC's cache. `dvc exp pull` or `dvc fetch --all-commits` fetches it, "
                "`dvc exp run` computes it again."
            )
        return place


def results(name: str) -> Results:
    """The results of `workspace`, or of an experiment, commit, branch or tag. Raises ValueError for an unknown name."""
    return WorkTree() if name == WORKSPACE else Experiment(name)
