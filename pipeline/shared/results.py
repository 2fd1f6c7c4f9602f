"""The results of experiments, commits and the work tree, read from git and DVC's cache, nothing checked out."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from abc import ABC, abstractmethod
from argparse import Namespace
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path

from ruamel.yaml import YAML

from pipeline.shared.params import Params
from transformer import files
from transformer.evaluation.comparison import System

WORKSPACE = "workspace"
OPTIONS = {"params": "params.yaml", "raw": "data/raw", "valid": "data/valid.hyp", "test": "data/test.hyp",
           "model": "data/model", "curve": "reports/training.csv", "summary": "reports/training.json",
           "scores": "reports/scores.json", "signatures": "reports/signatures.json", "engines": "reports/engines.json",
           "environment": "reports/environment.json", "page": "reports/report.html"}  # fmt: skip
EXPERIMENTS = "refs/exps/"  # .../<2 digits>/<38 digits of the commit it was started from>/<name>


def command(*words: str) -> str:
    """What a command prints. Raises ValueError with its last line when it fails."""
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        told = (done.stderr.strip() or done.stdout.strip() or f"{' '.join(words)} failed").split("\n")[-1]
        raise ValueError(told)
    return done.stdout


@cache
def cache_folder() -> Path:
    """Where DVC keeps the contents of outs."""
    return Path(command(sys.executable, "-m", "dvc", "cache", "dir").strip()) / "files/md5"


@cache
def sha256(path: Path) -> str:
    """sha256 of a file that does not change while this process runs."""
    return files.sha256(path)


class Results(ABC):
    """What one configuration left behind, wherever that is kept."""

    name: str

    @abstractmethod
    def text(self, path: str) -> str:
        """A file that git holds: params, metrics, curves."""

    @abstractmethod
    def folder(self, path: str) -> dict[str, Path]:
        """The files of a folder that DVC holds: name -> where its content lies."""

    @abstractmethod
    def file(self, path: str) -> Path:
        """Where the content of a file lies that DVC holds."""

    def lines(self, path: str) -> list[str]:
        """The lines of a text that DVC holds."""
        return list(files.read_lines(self.file(path)))

    def sha256(self, path: str) -> str:
        """As files.sha256, of a file, or of a folder (a path that ends in /), that DVC holds."""
        if not path.endswith("/"):
            return sha256(self.file(path))
        held = sorted(self.folder(path[:-1]).items())
        return files.sha256_text("".join(f"{sha256(place)}  {name}\n" for name, place in held))

    @cached_property
    def params(self) -> Params:
        """Its params. Raises ValueError where another version of this project wrote them."""
        return Params.parse(self.text("params.yaml"), f"params.yaml of {self.name}")

    def scores(self) -> dict[str, float]:
        """Name -> score."""
        return json.loads(self.text("reports/scores.json"))

    def signatures(self) -> dict[str, str]:
        """Name of a score -> how sacreBLEU computed it."""
        return json.loads(self.file("reports/signatures.json").read_text(encoding="utf-8"))

    def lock(self) -> dict[str, dict]:
        """Stage -> what DVC recorded of it."""
        return YAML(typ="safe").load(self.text("dvc.lock")).get("stages", {})

    def stale(self) -> bool:
        """Whether params or scores are not those that DVC recorded: edited after the last run, or never run."""
        lock = self.lock()
        if "score" not in lock or "report" not in lock:
            return True
        outs = {out["path"]: out["md5"] for out in lock["score"]["outs"]}
        digest = hashlib.md5(self.text("reports/scores.json").encode(), usedforsecurity=False).hexdigest()
        recorded = lock["report"]["params"]["params.yaml"]  # the page shows every knob
        return recorded != vars(self.params) or outs["reports/scores.json"] != digest

    def engines_agree(self) -> bool | None:
        """Whether compare_engines found the exported models to translate as this model; None: not measured on it."""
        lock = self.lock()
        try:
            (model,) = (out["md5"] for out in lock["average"]["outs"] if out["path"] == "data/model")
            measured = {dep["path"]: dep["md5"] for dep in lock["compare_engines"]["deps"]}
        except (KeyError, ValueError):
            return None
        if measured.get("data/model") != model:
            return None
        return json.loads(self.text("reports/engines.json")).get("engines_agree", True)  # version 0.1 kept no others

    def system(self) -> System:
        """Its scores and translations of test."""
        knobs = YAML(typ="safe").load(self.text("params.yaml"))
        return System(self.name, knobs, self.scores(), self.signatures(), self.lines("data/test.hyp"))


class WorkTree(Results):
    """A folder with the project in it; places: path in the project -> where it is instead."""

    def __init__(self, places: Mapping[str, Path] | None = None, root: Path = Path()):
        self.name, self._places, self._root = WORKSPACE, dict(places or {}), root

    @classmethod
    def of_stage(cls, paths: Namespace) -> WorkTree:
        """Where the options of a stage's command line say."""
        return cls({place: getattr(paths, option) for option, place in OPTIONS.items() if hasattr(paths, option)})

    def text(self, path: str) -> str:
        return self.file(path).read_text(encoding="utf-8")

    def file(self, path: str) -> Path:
        above, _, name = path.rpartition("/")
        return self._places.get(path) or self._places.get(above, self._root / above) / name

    def folder(self, path: str) -> dict[str, Path]:
        return {file.name: file for file in self.file(path).iterdir()}


class Experiment(Results):
    """One experiment (by its name), commit, branch or tag."""

    def __init__(self, name: str, commit: str = ""):
        self.name, self.commit = name, commit or resolved(name)

    @cached_property
    def hashes(self) -> dict[str, str]:
        """Path of an out -> its md5 in DVC's cache."""
        outs = [out for stage in self.lock().values() for out in stage.get("outs", [])]
        return {out["path"]: out["md5"] for out in outs}

    def text(self, path: str) -> str:
        try:
            return command("git", "show", f"{self.commit}:{path}")
        except ValueError:
            raise ValueError(f"{self.name} has no {path}; run it by `dvc exp run`, or commit it") from None

    def file(self, path: str) -> Path:
        if path in self.hashes:
            return self._cached(self.hashes[path], path)
        above, _, name = path.rpartition("/")
        return self.folder(above)[name]

    def folder(self, path: str) -> dict[str, Path]:
        listing = json.loads(self._cached(self.hashes.get(path, ""), path).read_text(encoding="utf-8"))
        return {one["relpath"]: self._cached(one["md5"], f"{path}/{one['relpath']}") for one in listing}

    def _cached(self, digest: str, path: str) -> Path:
        place = cache_folder() / digest[:2] / digest[2:]
        if not digest or not place.is_file():
            raise ValueError(
                f"{path} of {self.name} is not in DVC's cache; `dvc exp pull` or `dvc fetch --all-commits` gets it, "
                "dvc exp run makes it"
            )
        return place


def results(name: str) -> Results:
    """By an experiment's name, what git knows a commit by, or `workspace`. Raises ValueError for anything else."""
    return WorkTree() if name == WORKSPACE else Experiment(name)


def experiments() -> list[tuple[str, str, str]]:
    """Name, commit and baseline commit of every experiment of DVC's."""
    listed = command("git", "for-each-ref", "--format=%(objectname) %(refname)", EXPERIMENTS).split("\n")
    found = [line.split(" ", 1) for line in listed if line]
    parts = [(commit, reference.removeprefix(EXPERIMENTS).split("/", 2)) for commit, reference in found]
    return [(part[2], commit, part[0] + part[1]) for commit, part in parts if len(part) == 3 and len(part[1]) == 38]


def kept() -> list[tuple[Experiment, dict[str, str]]]:
    """Every experiment of DVC's and every commit that changed dvc.lock, each with its origin.

    HEAD and the experiments come first, the oldest before the others: so of two with one configuration the row has the
    name of the first, as when they were run. Other commits follow: a clone brings them along, and ran none of them.
    """
    marked = {commit: {"git_commit": baseline, "DVC_EXP_NAME": name, "DVC_EXP_BASELINE_REV": baseline}
              for name, commit, baseline in experiments()}  # fmt: skip
    listed = command("git", "rev-list", "--branches", "--tags", "--remotes", "--", "dvc.lock").split()
    if not listed and not marked:
        return []
    head = command("git", "rev-parse", "HEAD").strip()
    dates = command("git", "log", "--no-walk=unsorted", "--format=%ct %H", head, *listed, *marked).split("\n")
    dated = {commit: int(date) for date, commit in (line.split() for line in dates if line)}
    order = sorted(dated, key=lambda commit: (commit != head and commit not in marked, dated[commit], commit))
    found = [(commit, marked.get(commit, {"git_commit": commit})) for commit in order]
    return [(Experiment(tags.get("DVC_EXP_NAME", commit[:10]), commit), tags) for commit, tags in found]


def resolved(name: str) -> str:
    """The commit of an experiment's name, or of what git knows by it. Raises ValueError for a name of neither."""
    commits = {commit for known, commit, _ in experiments() if known == name}
    if len(commits) > 1:
        raise ValueError(f"{name} names {len(commits)} experiments; give the hash of one, as `dvc exp show` has it")
    if commits:
        return commits.pop()
    try:
        return command("git", "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").strip()
    except ValueError:
        raise ValueError(f"{name} is no experiment, branch, tag or commit; `dvc exp show` lists them") from None
