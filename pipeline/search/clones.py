"""Clones of this project in which trainings run, so that several run at once.

    python -m pipeline.search.clones FOLDER COMMIT    # clones, and prints the folder of the project in the clone

In one clone two experiments of DVC disturb each other: DVC waits three seconds for its lock and then fails, and it
keeps the edits of all waiting experiments on one stack, from which each takes the newest.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import psutil

from pipeline.workflow.git import command, environment_elsewhere, git
from pipeline.workflow.stage import MAIN_CHECKOUT, SECONDS_TO_SAVE, project_root, run
from transformer.files import Mistake

DVC = (sys.executable, "-m", "dvc")
RESULTS = (":(exclude)dvc.lock", ":(exclude)reports")


def clone(folder: Path, commit: str) -> Path:
    """Clone a commit of the repository into a folder, with its DVC cache, DVC settings and git user.

    Returns the folder of the project in the clone.
    """
    root, top = project_root(), git("rev-parse", "--show-toplevel").strip()
    project = folder / git("rev-parse", "--show-prefix").strip()
    shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed
    command("git", "clone", "--quiet", "--no-checkout", top, str(folder))
    command("git", "checkout", "--quiet", "--detach", commit, folder=folder)
    for setting in ("user.name", "user.email"):
        with suppress(Mistake):  # not set
            command("git", "config", setting, git("config", setting).strip(), folder=folder)
    if (settings := root / ".dvc/config.local").exists():
        shutil.copy(settings, project / ".dvc")
    command(*DVC, "config", "--local", "cache.dir", command(*DVC, "cache", "dir").strip(), folder=project)
    return project


def check_committed() -> None:
    """Raise Mistake if git lacks edits or files of this folder: clones would lack them too."""
    if lacking := git("status", "--porcelain", "--untracked-files=normal", "--", ".", *RESULTS).split("\n")[:-1]:
        raise Mistake(
            f"git does not have {lacking[0][3:]} as it is now, and trainings run in clones of HEAD. Nothing was run. "
            "Commit it (a large corpus: `dvc add`), then search again."
        )


def run_in(folder: Path, words: Sequence[str], output: IO[bytes], **variables: str) -> int:
    """Run a command line in a clone and return its exit status. output: gets what is printed.

    The state of a training and MLflow's database are in the main checkout. variables: additions to the environment.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    env = environment_elsewhere() | {MAIN_CHECKOUT: str(project_root()), "PATH": path} | variables
    return subprocess.run(
        words, cwd=folder, env=env, stdout=output, stderr=subprocess.STDOUT, process_group=0
    ).returncode


def end(processes: Iterable[psutil.Process]) -> None:
    """End processes by SIGTERM, on which a training saves its state. Those that take too long are killed."""
    running = list(processes)
    for process in running:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    for process in psutil.wait_procs(running, SECONDS_TO_SAVE)[1]:
        process.kill()


if __name__ == "__main__":  # for a task of Slurm
    run(lambda: print(clone(Path(sys.argv[1]), sys.argv[2])))
