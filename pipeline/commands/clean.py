"""Remove files that no result needs, and print how much space this freed. `make clean` runs this.

    python -m pipeline clean              # all of them
    python -m pipeline clean --days 30    # keep what was changed in work/ and the caches in the last 30 days

Removes  work/ (states of trainings), caches of tools, outs in DVC's cache that no commit, tag or experiment has, and
         files of MLflow runs that were deleted permanently
Keeps    the folder of a training that is running; work/outbox (events not yet sent to MLflow); work/journal (from
         which runs can be rebuilt); files of runs in MLflow's trash
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from pipeline.shared.results import cache_folder
from pipeline.shared.stage import project_root, renamed
from transformer.tracking.store import connect

CACHES = (".pytest_cache", ".ruff_cache", ".hypothesis", "dvc_plots")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=float, default=0, metavar="N", help="keep what was changed in the last N days")
    days = parser.parse_args().days
    if days < 0:
        parser.error(f"--days {days:g} must be 0 or more")
    root, freed = project_root(), 0
    for path in old(root, time.time() - days * 24 * 3600):
        freed += counted(path.relative_to(root), size(path))
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if (root / ".dvc").is_dir():
        before = size(cache_folder())
        words = ["gc", "--workspace", "--all-branches", "--all-tags", "--all-experiments", "--force", "--quiet"]
        subprocess.run([sys.executable, "-m", "dvc", *words], cwd=root, check=True)
        freed += counted("DVC's cache: outs that no commit, tag or experiment has", before - size(cache_folder()))
    print(f"{freed / 1e6:,.1f} MB freed")


def old(root: Path, before: float) -> Iterator[Path]:
    """Files and folders to remove: not in use, and last changed before `before` (seconds since 1970)."""
    work = root / "work"
    for path in [*sorted(work.glob("*")), *(root / name for name in CACHES), *orphans(root)]:
        needed = path.name in ("cores", "journal", "outbox") or path.suffix == ".lock"
        if needed or not path.exists() or newest(path) > before:
            continue
        lock = FileLock(path / "lock")
        try:
            if path.name.startswith("train-"):
                lock.acquire(timeout=0)
            yield path
        except Timeout:
            print(f"{path.relative_to(root)} is in use and was kept")
        finally:
            lock.release()


def orphans(root: Path) -> list[Path]:
    """Folders of runs that are no longer in MLflow's database."""
    if not (root / "mlflow.db").is_file() or os.environ.get("MLFLOW_TRACKING_URI"):
        return []
    known = {run.info.run_id for run in connect(root).all_runs(all_experiments=True)}
    found = sorted((root / "mlartifacts").glob("[0-9a-f]" * 32))  # a run's folder has its id as name
    return [path for path in found if path.name not in known]


def newest(path: Path) -> float:
    """When a file, or the newest file in a folder, was last written (seconds since 1970); 0 for none."""
    return max((file.stat().st_mtime for file in [path, *path.rglob("*")] if file.is_file()), default=0.0)


def size(path: Path) -> int:
    """The size of a file, or of all files in a folder, in bytes."""
    return sum(file.stat().st_size for file in [path, *path.rglob("*")] if file.is_file())


def counted(what: object, freed: int) -> int:
    """Print what was removed and its size, unless that is 0; returns the size in bytes."""
    if freed:
        print(f"{freed / 1e6:9,.1f} MB  {what}")
    return freed


if __name__ == "__main__":
    renamed("clean", main)
