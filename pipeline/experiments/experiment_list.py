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
import re
import shlex
import shutil
from contextlib import suppress
from pathlib import Path

from pipeline.experiments.clones import DVC, clone, publish, run_in
from pipeline.git import command, experiments, git, resolve
from pipeline.stage import hold_lock, project_root
from transformer.files import sha256_text, write_text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", type=Path, help="file with the options of an experiment on each line")
    parser.add_argument("line", type=int, help="number of the line to run, from 1")
    parser.add_argument("--commit", default="HEAD", help="what the experiment starts from (default: HEAD)")
    options = parser.parse_args()
    words = words_of(options.list, options.line)
    commit, name = resolve(options.commit), name_of(words, options.list.stem)
    folder = project_root() / "work" / f"experiment-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    # The scheduler may start this line on another node while the node that it has lost still runs it.
    with hold_lock(folder / "lock", "experiment"):
        former = folder / "options"  # of the experiment that has this name
        if any((experiment.name, experiment.baseline) == (name, commit) for experiment in experiments()):
            if former.exists() and former.read_text(encoding="utf-8") != shlex.join(words):
                raise ValueError(
                    f"{options.list}:{options.line}: There is an experiment {name} with other options. "
                    "Nothing was run. Use another --name."
                )
            print(f"Line {options.line} of {options.list} is the experiment {name}, which was run before.")
            return
        remark_if_edited(commit, options.list)
        try:
            run_line(folder / "clone", commit, name, words)
            write_text(former, shlex.join(words))
            publish(folder / "clone", commit, name)
        finally:
            shutil.rmtree(folder / "clone", ignore_errors=True)


def words_of(path: Path, line: int) -> list[str]:
    """The options on a line of a list of experiments. Raises ValueError if there are none, or if they are not valid."""
    lines = path.read_text(encoding="utf-8").split("\n")
    text = lines[line - 1] if 0 < line <= len(lines) else ""
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise ValueError(f"{path}:{line}: {text!r} is not a list of options ({error}). Correct the line.") from None
    if not words:
        raise ValueError(f"{path} has no experiment on line {line}. Write the options of `dvc exp run` there.")
    if "--queue" in words:
        raise ValueError(f"{path}:{line}: --queue runs nothing. Remove it: this command runs the experiment.")
    return words


def name_of(words: list[str], stem: str) -> str:
    """The name of an experiment: that of --name in its options, else `stem` and a short hash of the options.

    Raises ValueError if it cannot be the name of a folder.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("-n", "--name")
    try:
        name = parser.parse_known_args(words)[0].name
    except argparse.ArgumentError:
        raise ValueError(f"{shlex.join(words)}: --name needs a name. Correct the line.") from None
    name = name or f"{re.sub(r'[^A-Za-z0-9_-]', '-', stem)}-{sha256_text(shlex.join(words))[:7]}"
    if "/" in name or name.startswith("."):
        raise ValueError(f"--name {name} has a slash or begins with a dot. Choose another name.")
    return name


def remark_if_edited(commit: str, path: Path) -> None:
    """Print a remark if files of this project, other than the list at `path`, are not as the commit has them."""
    names = git("diff", "--name-only", commit, "--").split("\n")[:-1]
    if edited := [name for name in names if project_root() / name != path.absolute()]:
        print(f"remark: The experiment is run from commit {commit[:7]}, without the edits of {', '.join(edited)}.")


def run_line(folder: Path, commit: str, name: str, words: list[str]) -> None:
    """Run an experiment in a clone and send its data to DVC's default remote, if there is one.

    It is published after this, so that an experiment in the main checkout is complete.
    """
    clone(folder, commit)
    if status := run_in(folder, [*DVC, "exp", "run", "--name", name, *words]):
        raise ValueError(f"The experiment {name} has failed with status {status}. Its output is above.")
    remote = ""
    with suppress(ValueError):  # not set
        remote = command(*DVC, "config", "core.remote", folder=folder)
    if remote:
        command(*DVC, "exp", "push", ".", name, folder=folder)
