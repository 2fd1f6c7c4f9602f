"""Remove files that no result needs. `make clean` runs this.

    python -m pipeline clean              # prints what it will remove, and asks
    python -m pipeline clean --yes        # does not ask, for scripts
    python -m pipeline clean --days 30    # keeps what was written in the last 30 days

Removes  work/ (states of trainings), caches of tools, and in DVC's cache the outs that no commit, tag, experiment or
         work tree needs
Keeps    what running work uses; work/runs (from which MLflow's runs can be rebuilt); files of MLflow runs (`mlflow gc`
         removes those of deleted runs); a DVC cache outside this project, which other projects may use, unless
         --projects names them all
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from pipeline.experiments.provenance import parsed
from pipeline.git import cache_folder, cached, command, listed
from pipeline.stage import project_root

CACHES = (".pytest_cache", ".ruff_cache", ".hypothesis", "dvc_plots")
KEPT = ("clone", "cores", "gpus", "runs")  # in work/
REMOVING = "Removing "  # how `dvc gc --dry` begins the line of a file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=float, default=0, metavar="N", help="keep what was written in the last N days")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    others = "the other projects that use a DVC cache outside this project; what they need is kept"
    parser.add_argument("--projects", nargs="+", type=Path, default=[], metavar="PATH", help=others)
    given = parser.parse_args()
    if not given.days >= 0:
        parser.error(f"--days {given.days:g} must be 0 or more")
    root, before = project_root(), time.time() - given.days * 24 * 3600
    folders = [path for path in old(root, before) if not in_use(path)]
    outs = older(unused_outs(root, given.projects), before)
    sizes = {path: size(path) for path in [*folders, *outs]}
    for path in folders:
        show(path.relative_to(root), sizes[path])
    if outs:
        show(f"{len(outs):,} outs in DVC's cache {cache_folder()}", sum(sizes[path] for path in outs))
        if not given.projects:
            print("              If other clones use this cache, stop, and name them with --projects PATH ...")
    if not sizes:
        print("There is nothing to remove.")
    elif given.yes or agreed():
        if not given.yes and outs:  # meanwhile somebody may have committed some
            outs = sorted(set(outs) & set(unused_outs(root, given.projects)))
        freed = sum(sizes[path] for path in [*folders, *outs] if removed(path))
        print(f"{freed / 1e6:,.1f} MB freed")


def agreed() -> bool:
    """Ask on the terminal. Raises ValueError if standard input is not a terminal."""
    if not sys.stdin.isatty():
        raise ValueError("Nothing was removed, since nobody can answer here. In a script use --yes (make clean YES=1).")
    return input("Remove these? [y/N] ").strip().lower() in ("y", "yes")


def old(root: Path, before: float) -> Iterator[Path]:
    """Files and folders outside DVC's cache that may be removed if nothing uses them, last written before `before`."""
    for path in [*sorted((root / "work").glob("*")), *(root / name for name in CACHES)]:
        if path.exists() and path.name not in KEPT and path.suffix != ".lock" and newest(path) <= before:
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


def in_use(path: Path) -> bool:
    """Whether a training, `verify` or another process that runs in it uses a folder. Prints a message if so."""
    with locked(path) as free:
        used = not free or any(inside(process.info["cwd"], [path]) for process in psutil.process_iter(["cwd"]))
    if used:
        print(f"{path.name} is in use and is kept")
    return used


def inside(folder: str | None, places: Sequence[Path]) -> bool:
    """Whether the current folder of a process is in one of these places."""
    return folder is not None and any(Path(folder).is_relative_to(place.resolve()) for place in places)


def removed(path: Path) -> bool:
    """Remove a file or folder, unless somebody began to use it. Returns whether it was removed."""
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return True
    with locked(path) as free:
        if free:
            shutil.rmtree(path)
        return free


def unused_outs(root: Path, projects: Sequence[Path]) -> list[Path]:
    """Files in DVC's cache that no commit, tag, experiment or work tree of these projects needs.

    None, with a message, while a process of these projects may have made outs that no dvc.lock names yet; and none from
    a cache outside the project unless its other projects are named.
    """
    if not (root / ".dvc").is_dir():
        return []
    cache = cache_folder()
    if not cache.resolve().is_relative_to((root / ".dvc").resolve()) and not projects:
        print(
            f"DVC's cache {cache} is outside this project, so other projects may use it. It is left as it is. "
            "To clean it, name the other projects that use it: --projects PATH ..."
        )
        return []
    if busy := running([root, *projects]):
        print(f"DVC's cache is left as it is while this process runs: {busy}")
        return []
    kept = [f"--all-{what}" for what in ("commits", "branches", "tags", "experiments")]
    words = ["gc", "--workspace", *kept, "--dry", "--force"]
    others = ["--projects", *map(str, projects)] if projects else []
    done = subprocess.run([sys.executable, "-m", "dvc", *words, *others], cwd=root, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"Nothing was removed. `dvc gc` failed: {(done.stderr.strip() or done.stdout.strip())[-300:]}")
    found = {Path(line.removeprefix(REMOVING)) for line in done.stdout.split("\n") if line.startswith(REMOVING)}
    for project in [root, *projects]:
        found -= stashed(project)
    return sorted(found)


def stashed(project: Path) -> set[Path]:
    """The files of the outs that the stashes of a project name, which `dvc gc` does not see."""
    try:
        stashes = command("git", "stash", "list", "--format=%H", folder=project).split()
    except ValueError:  # no repository
        return set()
    found = set[Path]()
    for stash in stashes:
        with suppress(ValueError):  # without a dvc.lock
            lock = parsed(command("git", "show", f"{stash}:dvc.lock", folder=project)).get("stages", {})
            outs = [out["md5"] for entry in lock.values() for out in entry.get("outs", []) if "md5" in out]
            found |= {cached(md5) for md5 in outs}
    return found | {file for path in found for file in members(path)}


def members(path: Path) -> set[Path]:
    """The files in DVC's cache of which a folder consists, whose listing ends in .dir; none for another path."""
    return set(listed(path).values()) if path.suffix == ".dir" and path.is_file() else set()


def older(outs: Sequence[Path], before: float) -> list[Path]:
    """The outs that were last written before a time, without the files of folders that were written later."""
    young = {path for path in outs if newest(path) > before}
    young |= {file for path in young for file in members(path)}
    return [path for path in outs if path not in young]


def running(roots: Sequence[Path]) -> str:
    """A process of DVC or of a stage that runs in one of these folders, as `number: command`; empty if none does.

    The folder of another user's process cannot be seen, so it may be one of these.
    """
    mine = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    for process in psutil.process_iter(["cwd", "cmdline"]):
        words, folder = process.info["cmdline"] or [], process.info["cwd"]
        works = any(Path(word).name == "dvc" or word.startswith("pipeline.") for word in words)
        if works and (folder is None or inside(folder, roots)) and process.pid not in mine:
            return f"{process.pid}: {' '.join(words)}"
    return ""


def newest(path: Path) -> float:
    """When a file, or the newest file in a folder, was last written (seconds since 1970); 0 for none."""
    return max((file.stat().st_mtime for file in [path, *path.rglob("*")] if file.is_file()), default=0.0)


def size(path: Path) -> int:
    """The size of a file, or of all files in a folder, in bytes."""
    return sum(file.stat().st_size for file in [path, *path.rglob("*")] if file.is_file())


def show(what: object, amount: int) -> None:
    """Print what can be removed, and its size in bytes as MB."""
    print(f"{amount / 1e6:9,.1f} MB  {what}")
