"""Remove files that no result needs. `make clean` runs this.

    python -m pipeline clean              # prints what it will remove, and asks
    python -m pipeline clean --yes        # does not ask, for scripts
    python -m pipeline clean --days 30    # keeps folders of work/ that were written in the last 30 days

Removes  work/ (states of trainings), caches of tools, and in DVC's cache the outs that no commit, experiment, stash,
         queued experiment or work tree names in dvc.lock or in a .dvc file
Keeps    what running work uses; files of MLflow runs (`mlflow gc` removes those of deleted runs); a DVC cache outside
         this project, which other projects may use: `dvc gc` has --projects for it

For the cache of one project `dvc gc` does the same and takes 0.3 s a commit, since it reads all of its pipeline.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from pipeline.workflow.dvc_lock import members, project
from pipeline.workflow.git import content, git
from pipeline.workflow.stage import project_root

CACHES = (".pytest_cache", ".ruff_cache", ".hypothesis", "dvc_plots")
KEPT = ("clone", "cores", "gpus")  # in work/
NAMES_OUTS = ("*dvc.lock", "*.dvc")  # for git: files that name outs
# References of which git keeps all but the newest entry in the reflog: stashes, and DVC's queue.
STACKS = ("refs/stash", "refs/exps/stash", "refs/exps/celery/stash", "refs/exps/celery/failed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    days = "keep folders of work/ that were written in the last N days"
    parser.add_argument("--days", type=float, default=0, metavar="N", help=days)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    options = parser.parse_args()
    if not options.days >= 0:
        parser.error(f"--days {options.days:g} must be 0 or more")
    root, before = project_root(), time.time() - options.days * 24 * 3600
    folders = [path for path in old(root, before) if not is_used(path)]
    outs = unused_outs(root)
    sizes = {path: size(path) for path in [*folders, *outs]}
    for path in folders:
        print(f"{sizes[path] / 1e6:9,.1f} MB  {path.relative_to(root)}")
    if outs:
        cache = project(root).cache.local.path
        print(f"{sum(sizes[path] for path in outs) / 1e6:9,.1f} MB  {len(outs):,} outs in DVC's cache {cache}")
    if not sizes:
        print("There is nothing to remove.")
    elif options.yes or agreed():
        if not options.yes and outs:  # meanwhile somebody may have committed some
            outs = sorted(set(outs) & set(unused_outs(root)))
        freed = [sizes[path] for path in [*folders, *outs] if remove(path)]
        print(f"{sum(freed) / 1e6:,.1f} MB freed")
    else:
        print("Nothing was removed.")


def agreed() -> bool:
    """Ask on the terminal. Raises ValueError if standard input is not a terminal."""
    if not sys.stdin.isatty():
        raise ValueError("Nothing was removed, since nobody can answer here. In a script use --yes (make clean YES=1).")
    return input("Remove these? [y/N] ").strip().lower() in ("y", "yes")


def old(root: Path, before: float) -> Iterator[Path]:
    """Files and folders outside DVC's cache that may be removed if nothing uses them, last written before `before`."""
    for path in [*sorted((root / "work").glob("*")), *(root / name for name in CACHES)]:
        if path.exists() and path.name not in KEPT and path.suffix != ".lock":
            written = [file.stat().st_mtime for file in [path, *path.rglob("*")] if file.is_file()]
            if max(written, default=0) <= before:
                yield path


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold `lock` in a folder, if there is such a file; yields False if a training or `verify` holds it."""
    lock = FileLock(path / "lock")
    try:
        if (path / "lock").exists():
            lock.acquire(timeout=0)
        yield True
    except Timeout:
        yield False
    finally:
        lock.release()


def is_locked(path: Path) -> bool:
    """Whether a training, `verify` or an experiment holds `lock` in a folder."""
    with locked(path) as free:
        return not free


def is_used(path: Path) -> bool:
    """Whether a training, `verify` or another process that runs in it uses a folder. Prints a message if so."""
    with locked(path) as free:
        used = not free or any(is_inside(process.info["cwd"], path) for process in psutil.process_iter(["cwd"]))
    if used:
        print(f"{path.name} is in use and is kept")
    return used


def is_inside(folder: str | None, place: Path) -> bool:
    """Whether the current folder of a process is in a place."""
    return folder is not None and Path(folder).is_relative_to(place.resolve())


def remove(path: Path) -> bool:
    """Remove a file or folder, unless somebody began to use it. Returns whether it was removed."""
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return True
    with locked(path) as free:
        if free:
            shutil.rmtree(path)
        return free


def unused_outs(root: Path) -> list[Path]:
    """Files in the project's own DVC cache that no commit, experiment, stash or work tree names.

    None, with a message, while a process of the project may have made outs that no dvc.lock names yet.
    """
    if not (root / ".dvc").is_dir():
        return []
    cache = project(root).cache.local
    if not Path(cache.path).resolve().is_relative_to((root / ".dvc").resolve()):
        print(
            f"DVC's cache {cache.path} is outside this project, so other projects may use it. It is left as it is. "
            "Clean it by `dvc gc --all-commits --all-experiments --projects PATH ...`, with the other projects."
        )
        return []
    if busy := running(root):
        print(f"DVC's cache is left as it is while this process runs: {busy}")
        return []
    if any(is_locked(path) for path in (root / "work").glob("*")):  # perhaps by a process of another machine
        print("DVC's cache is left as it is while work/ is in use.")
        return []
    named = named_outs(root)
    named |= {inner for md5 in named for inner in members(md5).values()}
    return sorted(Path(cache.oid_to_path(md5)) for md5 in cache.all() if md5 not in named)


def named_outs(root: Path) -> set[str]:
    """The md5s in each version of dvc.lock and .dvc files that a ref, stash, queue or work tree of a project has."""
    stacks = git("for-each-ref", "--format=%(refname)", *STACKS).split()
    stacked = [commit for stack in stacks for commit in git("reflog", "show", "--format=%H", stack).split()]
    objects = git("rev-list", "--objects", "--full-history", "--all", *stacked, "--", *NAMES_OUTS).split("\n")
    names = git("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *NAMES_OUTS).split("\0")[:-1]
    texts = [content(line.split(" ")[0]) for line in objects if " " in line]
    texts += [Path(name).read_bytes() for name in names if Path(name).is_file()]
    return {md5.decode() for text in texts for md5 in re.findall(rb"md5: '?([0-9a-f]{32}(?:\.dir)?)", text)}


def running(root: Path) -> str:
    """A process of DVC or of a stage that runs in a folder, as `number: command`; empty if none does.

    The folder of another user's process cannot be seen, so it may be this one.
    """
    mine = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    for process in psutil.process_iter(["cwd", "cmdline"]):
        words, folder = process.info["cmdline"] or [], process.info["cwd"]
        works = any(Path(word).name == "dvc" or word.partition(".")[0] == "pipeline" for word in words)
        if works and (folder is None or is_inside(folder, root)) and process.pid not in mine:
            return f"{process.pid}: {' '.join(words)}"
    return ""


def size(path: Path) -> int:
    """The size of a file, or of all files in a folder, in bytes."""
    return sum(file.stat().st_size for file in [path, *path.rglob("*")] if file.is_file())
