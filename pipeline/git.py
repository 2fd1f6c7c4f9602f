"""Names, commits and files of commits, as git and DVC print them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

EXPERIMENTS = "refs/exps/"  # refs/exps/<2 digits>/<38 digits of the baseline commit>/<name>


def command(*words: str, folder: Path | None = None) -> str:
    """Run a command line; returns its standard output. Raises ValueError with the last printed line if it fails."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, cwd=folder)
    except FileNotFoundError:
        raise ValueError(
            f"{words[0]} is not installed, or not in PATH. Install it: experiments are kept in git."
        ) from None
    if done.returncode:
        raise ValueError((done.stderr.strip() or done.stdout.strip() or f"{' '.join(words)} failed").split("\n")[-1])
    return done.stdout


def git(*words: str) -> str:
    """Run a git command, as `command` does, without what log.showSignature would print between the lines."""
    return command("git", "-c", "log.showSignature=false", *words)


def difference(*words: str, folder: Path | None = None) -> bytes:
    """What `git diff` prints with these words, in the format that `git apply` reads, whatever git's settings are.

    Raises ValueError if git fails.
    """
    usual = [
        "--binary",
        "--unified=3",
        "--no-color",
        "--no-ext-diff",
        "--no-textconv",
        "--src-prefix=a/",
        "--dst-prefix=b/",
    ]
    done = subprocess.run(["git", "diff", *usual, *words], cwd=folder, capture_output=True)
    if done.returncode > 1:  # 1: --no-index found a difference
        raise ValueError(done.stderr.decode(errors="replace").strip().split("\n")[-1])
    return done.stdout


def unknown(*paths: Path) -> bool:
    """Whether git neither has nor ignores some files at these paths. Raises ValueError outside a repository."""
    return bool(git("ls-files", "--others", "--exclude-standard", "--", *map(str, paths)))


def ignores(path: Path) -> bool:
    """Whether git ignores a path."""
    return subprocess.run(["git", "check-ignore", "--quiet", str(path)]).returncode == 0


def remark_if_uncommitted(folder: Path, files: Iterable[str] = ("",)) -> None:
    """Print a remark if git lacks files of a folder that DVC does not track: experiments of a queue lack them too."""
    try:
        missing = git("status", "--porcelain", "--ignored", "--", *(str(folder / name) for name in files))
    except ValueError:  # no git, or a folder outside the repository
        return
    if missing and not folder.with_name(f"{folder.name}.dvc").exists():
        print(
            f"remark: git does not have {folder} as it is now. Commit it before you run experiments with --queue or "
            "--temp: they run in a copy of what git has."
        )


@cache
def cache_folder() -> Path:
    """The folder in which DVC keeps the contents of outs, each in a file named by its md5."""
    return Path(command(sys.executable, "-m", "dvc", "cache", "dir").strip()) / "files/md5"


def cached(md5: str) -> Path:
    """The file in DVC's cache that has a hash of dvc.lock as its name; it need not exist."""
    return cache_folder() / md5[:2] / md5[2:]


def listed(listing: Path) -> dict[str, Path]:
    """The files of a folder in DVC's cache, from its listing, whose name ends in .dir: path in the folder -> file."""
    entries = json.loads(listing.read_text(encoding="utf-8"))
    cache = listing.parent.parent
    return {one["relpath"]: cache / one["md5"][:2] / one["md5"][2:] for one in entries}


@cache
def tree(commit: str) -> dict[str, str]:
    """The files of a commit: path -> hash of its content in git."""
    listed = git("ls-tree", "-r", "-z", "--full-tree", commit).split("\0")
    return {
        path: words.split()[2]
        for words, _, path in (line.partition("\t") for line in listed if line)
        if words.split()[1] == "blob"
    }  # a submodule has none


@cache
def content(blob: str) -> bytes:
    """The content of a file, from its hash in git."""
    return subprocess.run(["git", "cat-file", "blob", blob], check=True, capture_output=True).stdout


class Reference(NamedTuple):
    """A DVC experiment as git holds it."""

    name: str
    commit: str
    baseline: str  # the commit that the experiment started from


def experiments() -> list[Reference]:
    """The DVC experiments of this repository."""
    listed = git("for-each-ref", "--format=%(objectname) %(refname)", EXPERIMENTS).split("\n")
    found = [re.fullmatch(f"([0-9a-f]+) {EXPERIMENTS}([0-9a-f]{{2}})/([0-9a-f]{{38}})/(.+)", line) for line in listed]
    return [Reference(each[4], each[1], each[2] + each[3]) for each in found if each]


def resolved(name: str) -> str:
    """The hash of the commit that an experiment, commit, branch or tag has. Raises ValueError for an unknown name."""
    commits = {found.commit for found in experiments() if found.name == name}
    if len(commits) > 1:
        raise ValueError(f"{name} is the name of {len(commits)} experiments. Use a hash from `dvc exp show`.")
    if commits:
        return commits.pop()
    try:
        return git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").strip()
    except ValueError:
        shallow = git("rev-parse", "--is-shallow-repository").strip() == "true"
        raise ValueError(
            f"{name} is not an experiment, branch, tag or commit. `dvc exp show` lists the experiments."
            + (" This is a shallow clone: `git fetch --unshallow` fetches the older commits." if shallow else "")
        ) from None
