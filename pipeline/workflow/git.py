"""Names, commits and files of commits, as git has them. Paths are those in this project, which may be a subfolder."""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from transformer.files import Mistake

EXPERIMENTS = "refs/exps/"  # refs/exps/<2 digits>/<38 digits of the baseline commit>/<name>


def command(*words: str, folder: Path | None = None) -> str:
    """Run a command line; returns its standard output. Raises Mistake with the last printed line if it fails.

    folder: where it runs, if not in the current folder.
    """
    environment = environment_elsewhere() if folder else None
    try:
        done = subprocess.run(words, capture_output=True, text=True, cwd=folder, env=environment)
    except FileNotFoundError:
        raise Mistake(
            f"{words[0]} is not installed, or not in PATH. Install it: experiments are kept in git."
        ) from None
    if done.returncode:
        here = (folder or Path()).absolute()
        if words[0] == "git" and not any((parent / ".git").exists() for parent in (here, *here.parents)):
            raise Mistake(
                f"{here} is not in a git repository, where experiments are kept. Nothing was done. Type `git init && "
                "git add -A && git commit -m start`, or work in a clone."
            )
        raise Mistake((done.stderr.strip() or done.stdout.strip() or f"{' '.join(words)} failed").split("\n")[-1])
    return done.stdout


@cache
def local_variables() -> frozenset[str]:
    """The names of the variables by which git redirects its commands, such as GIT_DIR, which it sets for hooks."""
    return frozenset(command("git", "rev-parse", "--local-env-vars").split())


def environment_elsewhere() -> dict[str, str]:
    """The variables for a command on another repository, on which those of `local_variables` must have no effect."""
    return {name: value for name, value in os.environ.items() if name not in local_variables()}


def git(*words: str) -> str:
    """Run a git command in the current folder, whatever GIT_DIR says, without what log.showSignature would print."""
    return command("git", "-c", "log.showSignature=false", *words, folder=Path.cwd())


def blob_of(commit: str, path: str) -> bytes | None:
    """The content of a file of a commit, or None if the commit does not have it. path: in the current folder."""
    words = ["git", "cat-file", "blob", f"{commit}:./{path}"]
    done = subprocess.run(words, env=environment_elsewhere(), capture_output=True)
    return None if done.returncode else done.stdout


class Reference(NamedTuple):
    """A DVC experiment as git holds it."""

    name: str
    commit: str
    baseline: str  # the commit that the experiment started from


def experiments() -> list[Reference]:
    """The DVC experiments of this repository."""
    lines = git("for-each-ref", "--format=%(objectname) %(refname)", EXPERIMENTS).split("\n")
    matches = [re.fullmatch(f"([0-9a-f]+) {EXPERIMENTS}([0-9a-f]{{2}})/([0-9a-f]{{38}})/(.+)", line) for line in lines]
    return [Reference(match[4], match[1], match[2] + match[3]) for match in matches if match]


def resolve(name: str) -> str:
    """The hash of the commit that an experiment, commit, branch or tag has. Raises Mistake for an unknown name."""
    commits = {experiment.commit for experiment in experiments() if experiment.name == name}
    if len(commits) > 1:
        raise Mistake(f"{name} is the name of {len(commits)} experiments. Use a hash from `dvc exp show`.")
    with suppress(Mistake):
        commits.add(git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").strip())
    if len(commits) > 1:
        raise Mistake(f"{name} is the name of an experiment and of a branch, tag or commit. Use a hash.")
    if commits:
        return commits.pop()
    shallow = git("rev-parse", "--is-shallow-repository").strip() == "true"
    raise Mistake(
        f"{name} is not an experiment, branch, tag or commit. `dvc exp show` lists the experiments."
        + (" This is a shallow clone: `git fetch --unshallow` fetches the older commits." if shallow else "")
    )
