"""Remove old folders of work/, and outs in DVC's cache that no result needs. `make clean` runs this.

    python -m pipeline clean              # prints what it will remove, and asks
    python -m pipeline clean --yes        # does not ask, for scripts
    python -m pipeline clean --days 30    # keeps what was written to work/ in the last 30 days

Removes  states of trainings and tracebacks in work/; the outs in DVC's cache that no commit, stash, experiment or work
         tree of this repository names
Keeps    states of trainings that run; files of MLflow runs (`mlflow gc` removes those of deleted runs)
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from filelock import FileLock, Timeout

from pipeline.workflow.dvc_lock import project
from pipeline.workflow.git import blob_of, git
from pipeline.workflow.stage import project_root
from transformer.files import Mistake


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    days = "keep what was written to work/ in the last N days"
    parser.add_argument("--days", type=float, default=0, metavar="N", help=days)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    options = parser.parse_args()
    if not options.days >= 0:
        parser.error(f"--days {options.days:g} must be 0 or more")
    root = project_root()
    trees = [Path(line[9:]) for line in git("worktree", "list", "--porcelain").split("\n") if line[:9] == "worktree "]
    check_idle(root)
    check_own_cache(root, trees)
    folders = list(older_folders(root / "work", time.time() - options.days * 24 * 3600))
    for path in folders:
        print(f"{size(path) / 1e6:9,.1f} MB  {path.relative_to(root)}")
    print("outs in DVC's cache that no commit, stash, experiment or work tree of this clone names")
    if not options.yes and not ask_consent():
        print("Nothing was removed.")
        return
    for path in folders:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if any(is_used(path) for path in (root / "work").glob("*")):
        print("DVC's cache was not cleaned: a training still runs. Clean again when it has ended.")
        return
    # In a subfolder the project is at the same path in each work tree.
    inner = git("rev-parse", "--show-prefix").strip()
    others = [tree / inner for tree in trees if (tree / inner / ".dvc").is_dir() and tree / inner != root.resolve()]
    print(f"{remove_unused(root, others)} files were removed from DVC's cache.")


def remove_unused(root: Path, others: list[Path]) -> int:
    """Remove the outs in DVC's cache that nothing names; returns how many files. Raises Mistake if DVC cannot.

    Like `dvc gc`, but it reads only commits that changed a dvc.lock, dvc.yaml or .dvc file. It holds the locks of all
    work trees, and prints what it reads. others: other work trees.
    """
    repo = project(root)
    from dvc.exceptions import DvcException
    from dvc.repo import Repo, lock_repo
    from dvc_data.hashfile.gc import gc

    logging.getLogger("dvc").setLevel(logging.ERROR)  # a line for each commit without a result is left out
    stashes = [line.split() for line in git("stash", "list", "--format=%H %P").split("\n") if line]
    if any(blob_of(untracked[0], "dvc.lock") for _, _, _, *untracked in stashes if untracked):
        raise Mistake("A stash has an untracked dvc.lock. Nothing was removed. Type `git stash pop`, and commit it.")
    try:
        with ExitStack() as locks:  # until all is removed: what is stored meanwhile would be removed too
            elsewhere = [Repo(str(tree)) for tree in others]
            for each in (repo, *elsewhere):
                locks.enter_context(lock_repo(each))
            commits = git("rev-list", "--full-history", "--all", "--", "*dvc.lock", "*dvc.yaml", "*.dvc").split()
            commits += ["HEAD", *(commit for commit, *_ in stashes)]
            print(f"reading which outs {len(commits)} commits and the experiments name ...", flush=True)
            read = [repo.used_objs(revs=commits, all_experiments=True, force=True)]
            read += [each.used_objs(force=True) for each in elsewhere]
            used = {out for outs in read for part in outs.values() for out in part}
            return sum(gc(cache, used) for _, cache in repo.cache.by_scheme() if cache)
    except DvcException as error:
        raise Mistake(f"DVC's cache was not cleaned: {error}") from error


def check_idle(root: Path) -> None:
    """Raise Mistake while experiments are queued or run: no commit names their outs yet."""
    experiments = project(root).experiments
    busy = [*experiments.celery_queue.iter_queued(), *experiments.celery_queue.iter_active()]
    busy += experiments.tempdir_queue.iter_active()
    if busy:
        raise Mistake(
            f"{len(busy)} experiments are queued or run, and no commit names what they made. Nothing was "
            "removed. Wait for them, or `dvc queue remove` them."
        )


def check_own_cache(root: Path, trees: list[Path]) -> None:
    """Raise Mistake if DVC's cache is outside this repository: other projects may use it."""
    cache = Path(project(root).cache.local.path).resolve()
    if not any(cache.is_relative_to(tree.resolve()) for tree in trees):
        raise Mistake(
            f"DVC's cache {cache} is outside this project, so other projects may need its outs. Nothing was removed. "
            "Clean it by `dvc gc --all-commits --all-experiments --projects PATH ...` with the folder of each project."
        )


def ask_consent() -> bool:
    """Ask on the terminal. Raises Mistake if standard input is not a terminal."""
    if not sys.stdin.isatty():
        raise Mistake("Nothing was removed, since nobody can answer here. In a script use --yes (make clean YES=1).")
    return input("Remove these? [y/N] ").strip().lower() in ("y", "yes")


def older_folders(work: Path, before: float) -> Iterator[Path]:
    """What is in work/, was last written before a moment, and is not in use."""
    for path in sorted(work.glob("*")):
        written = [file.stat().st_mtime for file in [path, *path.rglob("*")] if file.is_file()]
        if max(written, default=0) <= before and path.suffix != ".lock" and path.name != "gpus" and not is_used(path):
            yield path


def is_used(path: Path) -> bool:
    """Whether a training or a search holds `lock` in a folder, or it is the clone of a task of Slurm.

    Prints a message if so.
    """
    if not (path / "lock").exists() and not path.name.startswith("experiment-"):
        return False
    try:
        if path.name.startswith("experiment-"):  # the task removes it when it ends
            raise Timeout(str(path))
        FileLock(path / "lock").acquire(timeout=0).lock.release()
    except Timeout:
        print(f"{path.name} is in use and is kept")
        return True
    return False


def size(path: Path) -> int:
    """The size of a file, or of all files in a folder, in bytes."""
    return sum(file.stat().st_size for file in [path, *path.rglob("*")] if file.is_file())
