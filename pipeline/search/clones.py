"""Experiments in clones of this project, so that several run at once, on one machine or on several.

Experiments of DVC disturb each other in one clone. One that has waited three seconds for DVC's lock ends. All put their
work on one stack, and each runs what is on top, which may be another's. One that is stopped at its start leaves
params.yaml changed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import psutil

from pipeline.workflow.git import (
    EXPERIMENTS,
    command,
    difference,
    dvc_files_on_disk,
    environment_elsewhere,
    git,
    ignores,
    unknown,
)
from pipeline.workflow.stage import MAIN_CHECKOUT, SECONDS_TO_SAVE, project_root

DVC = (sys.executable, "-m", "dvc")


def clone(folder: Path, commit: str, edits: bytes = b"") -> None:
    """Clone the project into a folder, with its DVC cache, DVC settings and git user.

    edits: changes of files that `commit` does not have; see `edits_of_work_tree`.
    """
    root = project_root()
    shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed
    command("git", "clone", "--quiet", "--no-checkout", str(root), str(folder))
    command("git", "checkout", "--quiet", "--detach", commit, folder=folder)
    if edits:
        words = ["git", "apply", "--index", "--whitespace=nowarn"]
        result = subprocess.run(words, cwd=folder, input=edits, capture_output=True)
        if result.returncode:
            reason = result.stderr.decode(errors="replace").strip().split("\n")[-1]
            raise ValueError(f"git cannot repeat the edits of this work tree in a clone ({reason}). Commit them first.")
    for setting in ("user.name", "user.email"):
        with suppress(ValueError):  # not set
            command("git", "config", setting, git("config", setting).strip(), folder=folder)
    if (settings := root / ".dvc/config.local").exists():
        shutil.copy(settings, folder / ".dvc")
    command(*DVC, "config", "--local", "cache.dir", command(*DVC, "cache", "dir").strip(), folder=folder)


def edits_of_work_tree() -> bytes:
    """What the work tree has changed in the files of HEAD, and files that were added to git, for `clone`."""
    return difference("HEAD", folder=project_root())


def check_clones_have(folder: Path) -> None:
    """Raise ValueError if a clone of this work tree, with its edits, would lack files of a folder or get others.

    Files may be in git, or in DVC by a .dvc file of the folder, of a folder above it, or of single files in it. Ignored
    files that neither has are not seen if the folder itself is not ignored.
    """
    tracked = dvc_files_on_disk(folder)
    names = " ".join(tracked)
    try:
        lacking = unknown(folder) or (not tracked and ignores(folder))
    except ValueError:  # no git, or a folder outside the repository
        return
    if lacking:
        raise ValueError(
            f"git does not have all of {folder}, so the clones that trainings run in lack it. Nothing was run. "
            f"Give it to git: git add {folder}; or to DVC: dvc add {folder} && git add {folder}.dvc"
        )
    if tracked and unknown(*map(Path, tracked)):
        raise ValueError(
            f"git does not have {names}, so the clones that trainings run in lack {folder}. Nothing was run. "
            f"Give it to git: git add {names}"
        )
    if tracked and json.loads(command(*DVC, "status", "--json", *tracked)):
        raise ValueError(
            f"{folder} has edits that {names} does not have, so the clones that trainings run in lack them. "
            f"Nothing was run. Give them to DVC: dvc commit {names}"
        )


def run_in(folder: Path, words: Sequence[str], output: IO[bytes] | None = None, **variables: str) -> int:
    """Run a command line in a clone and return its exit status. output: gets what is printed.

    The state of a training and MLflow's database are in the main checkout. variables: additions to the environment.
    SIGTERM and Ctrl-C, as SystemExit and KeyboardInterrupt, are passed on; its processes have ended when they are
    raised here.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    env = environment_elsewhere() | {MAIN_CHECKOUT: str(project_root()), "PATH": path} | variables
    errors = subprocess.STDOUT if output else None
    process = subprocess.Popen(words, cwd=folder, env=env, stdout=output, stderr=errors, process_group=0)
    try:
        return process.wait()
    except (KeyboardInterrupt, SystemExit):
        parent = psutil.Process(process.pid)
        end([parent, *parent.children(recursive=True)])
        raise


def end(processes: Iterable[psutil.Process]) -> None:
    """End processes by SIGTERM, on which a training saves its state. Those that take too long are killed."""
    running = list(processes)
    for process in running:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    for process in psutil.wait_procs(running, SECONDS_TO_SAVE)[1]:
        process.kill()


def reference(commit: str, name: str) -> str:
    """The git reference of an experiment that started from a commit."""
    return f"{EXPERIMENTS}{commit[:2]}/{commit[2:]}/{name}"


def publish(folder: Path, commit: str, name: str) -> None:
    """Send an experiment that started from a commit from a clone to the main checkout; it replaces one there."""
    experiment = reference(commit, name)
    command("git", "push", "--quiet", "--force", "origin", f"{experiment}:{experiment}", folder=folder)
