"""Run one line of a list of experiments, as a task of a cluster does (docs/cluster.md).

    python -m pipeline experiment experiments.txt 3

Each line of the list has the options of one `dvc exp run`, as in `-S dropout=0.2 -S seed=2`. Any number of lines may
run at once, on all machines that share this folder. A line that has its experiment is not run again; one that was
killed resumes its training.

Reads   the list, and a commit of this project: edits that are not committed are not in the experiment
Writes  the experiment, the outs in DVC's cache and in its default remote if it has one, the MLflow run
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from pipeline.shared.git import EXPERIMENTS, command, experiments, git, resolved
from pipeline.shared.locks import hold_lock
from pipeline.shared.stage import MAIN_CHECKOUT, project_root
from transformer.files import sha256_text

DVC = (sys.executable, "-m", "dvc")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", type=Path, help="file with the options of an experiment on each line")
    parser.add_argument("line", type=int, help="number of the line to run, from 1")
    parser.add_argument("--commit", default="HEAD", help="what the experiment starts from (default: HEAD)")
    given = parser.parse_args()
    options = options_of(given.list, given.line)
    commit = resolved(given.commit)
    name = name_of(options, given.list.stem)
    folder = project_root() / "work" / f"experiment-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    # The scheduler may start this line on another node while the node that it has lost still runs it.
    with hold_lock(folder / "lock", "experiment"):
        if any((found.name, found.baseline) == (name, commit) for found in experiments()):
            print(f"Line {given.line} of {given.list} is the experiment {name}, which was run before.")
            return
        remark_if_edited(commit, given.list)
        try:
            clone(project_root(), folder / "clone", commit)
            reproduce(folder / "clone", name, options)
            keep(folder / "clone", f"{EXPERIMENTS}{commit[:2]}/{commit[2:]}/{name}")
        finally:
            shutil.rmtree(folder / "clone", ignore_errors=True)


def options_of(path: Path, line: int) -> list[str]:
    """The options on a line of a list of experiments. Raises ValueError if there is no such line, or if it is empty."""
    lines = path.read_text(encoding="utf-8").split("\n")
    text = lines[line - 1] if 0 < line <= len(lines) else ""
    if not text.strip():
        raise ValueError(f"{path} has no experiment on line {line}. Write the options of `dvc exp run` there.")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ValueError(f"{path}:{line}: {text!r} is not a list of options ({error}). Correct the line.") from None


def name_of(options: list[str], stem: str) -> str:
    """The name of an experiment: that of --name in its options, else `stem` and a short hash of the options.

    Raises ValueError if it cannot be the name of a folder.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("-n", "--name")
    try:
        given = parser.parse_known_args(options)[0].name
    except argparse.ArgumentError:
        raise ValueError(f"{shlex.join(options)}: --name needs a name. Correct the line.") from None
    name = given or f"{stem}-{sha256_text(shlex.join(options))[:7]}"
    if "/" in name or name.startswith("."):  # it is also the name of a folder
        raise ValueError(f"--name {name} has a slash or begins with a dot. Choose another name.")
    return name


def remark_if_edited(commit: str, path: Path) -> None:
    """Print a remark if files of this project, other than the list at `path`, are not as the commit has them."""
    names = git("diff", "--name-only", commit, "--").split("\n")[:-1]
    if edited := [name for name in names if project_root() / name != path.absolute()]:
        print(f"remark: The experiment is run from commit {commit[:7]}, without the edits of {', '.join(edited)}.")


def clone(root: Path, folder: Path, commit: str) -> None:
    """Clone the project into a folder, with its DVC cache, DVC settings and git user.

    Several `dvc exp run --temp` at once fail in one clone. One that waits three seconds for DVC's lock ends. All
    put their experiments on one stack and then run the top one, which may be that of another process.
    """
    shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed
    command("git", "clone", "--quiet", "--no-checkout", str(root), str(folder))
    command("git", "checkout", "--quiet", "--detach", commit, folder=folder)
    for setting in ("user.name", "user.email"):
        with suppress(ValueError):  # not set
            command("git", "config", setting, git("config", setting).strip(), folder=folder)
    settings = root / ".dvc" / "config.local"
    if settings.exists():
        shutil.copy(settings, folder / ".dvc")
    command(*DVC, "config", "--local", "cache.dir", command(*DVC, "cache", "dir").strip(), folder=folder)


def reproduce(folder: Path, name: str, options: list[str]) -> None:
    """Run an experiment in a clone. The state of its training and its MLflow run are in the main checkout."""
    words = [*DVC, "exp", "run", "--temp", "--name", name, *options]
    if status := subprocess.run(words, cwd=folder, env=os.environ | {MAIN_CHECKOUT: str(project_root())}).returncode:
        raise ValueError(f"The experiment {name} has failed with status {status}. Its output is above.")


def keep(folder: Path, reference: str) -> None:
    """Send an experiment's data to DVC's default remote, if there is one, and then the experiment to the main checkout.

    In this order, so that an experiment in the main checkout is complete.
    """
    remote = ""
    with suppress(ValueError):  # not set
        remote = command(*DVC, "config", "core.remote", folder=folder)
    if remote:
        command(*DVC, "exp", "push", ".", reference.rpartition("/")[2], folder=folder)
    command("git", "push", "--quiet", "origin", f"{reference}:{reference}", folder=folder)
