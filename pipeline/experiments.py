"""What DVC and git keep of experiments, commits and the work tree, read without checking anything out."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path

from ruamel.yaml import YAML

from transformer.comparison import System

WORKSPACE = "workspace"


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
    return Path(command("dvc", "cache", "dir").strip()) / "files/md5"


class Experiment:
    """One experiment (by its name), commit, branch or tag, or the work tree: its params, scores and outs."""

    def __init__(self, name: str):
        self.name, self.commit = name, None if name == WORKSPACE else resolved(name)
        lock = YAML(typ="safe").load(self.text("dvc.lock"))
        outs = [out for stage in lock["stages"].values() for out in stage.get("outs", [])]
        self.hashes = {out["path"]: out["md5"] for out in outs}

    def text(self, path: str) -> str:
        """A file that git holds."""
        if self.commit is None:
            return Path(path).read_text(encoding="utf-8")
        try:
            return command("git", "show", f"{self.commit}:{path}")
        except ValueError:
            raise ValueError(f"{self.name} has no {path}; run it by `dvc exp run`, or commit it") from None

    def out(self, path: str) -> bytes:
        """A file that DVC's cache holds, or one in a folder that it holds."""
        if self.commit is None:
            return Path(path).read_bytes()
        if path in self.hashes:
            return self._cached(self.hashes[path], path)
        folder, _, inside = path.rpartition("/")
        listing = json.loads(self._cached(self.hashes.get(folder, ""), folder))
        return self._cached(next((one["md5"] for one in listing if one["relpath"] == inside), ""), path)

    def lines(self, path: str) -> list[str]:
        """The lines of a file that DVC's cache holds."""
        return self.out(path).decode().removesuffix("\n").split("\n")

    def _cached(self, digest: str, path: str) -> bytes:
        file = cache_folder() / digest[:2] / digest[2:]
        if not digest or not file.is_file():
            raise ValueError(
                f"{path} of {self.name} is not in DVC's cache; `dvc exp pull` or `dvc fetch --all-commits` gets it, "
                "dvc exp run makes it"
            )
        return file.read_bytes()

    def system(self) -> System:
        """Its scores and translations of test."""
        return System(
            self.name,
            YAML(typ="safe").load(self.text("params.yaml")),
            json.loads(self.text("reports/scores.json")),
            json.loads(self.out("reports/signatures.json")),
            self.lines("data/test.hyp"),
        )


def resolved(name: str) -> str:
    """The commit of an experiment's name, or of what git knows by it. Raises ValueError for a name of neither."""
    found = [line.split() for line in command("git", "for-each-ref", "--format=%(refname) %(objectname)",
                                              "refs/exps").strip().split("\n") if line]  # fmt: skip
    commits = {commit for reference, commit in found if reference.rpartition("/")[2] == name}
    if len(commits) > 1:
        raise ValueError(f"{name} names {len(commits)} experiments; give the hash of one, as `dvc exp show` has it")
    if commits:
        return commits.pop()
    try:
        return command("git", "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").strip()
    except ValueError:
        raise ValueError(f"{name} is no experiment, branch, tag or commit; `dvc exp show` lists them") from None
