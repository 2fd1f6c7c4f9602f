"""`make clean`: remove what no result needs any more, and say what that freed.

    python -m pipeline clean              # of work/ and caches; of DVC's cache what no commit, tag or experiment names
    python -m pipeline clean --days 30    # only what nobody has touched for that long

A training that runs keeps its folder; what MLflow has not got yet (work/outbox) and what its rows can be rebuilt from
(work/journal) stay. Files of rows that were deleted for good go; those of rows in the trash stay.
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
    parser.add_argument("--days", type=float, default=0, metavar="N", help="spare what was touched in the last N days")
    days = parser.parse_args().days
    if days < 0:
        parser.error(f"--days {days:g} must be 0 or more")
    root, freed = project_root(), 0
    for path in old(root, time.time() - days * 24 * 3600):
        freed += said(path.relative_to(root), size(path))
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if (root / ".dvc").is_dir():
        before = size(cache_folder())
        words = ["gc", "--workspace", "--all-branches", "--all-tags", "--all-experiments", "--force", "--quiet"]
        subprocess.run([sys.executable, "-m", "dvc", *words], cwd=root, check=True)
        freed += said("DVC's cache, outs of no commit, tag or experiment", before - size(cache_folder()))
    print(f"{freed / 1e6:,.1f} MB freed")


def old(root: Path, before: float) -> Iterator[Path]:
    """What may go: nobody uses it, and its newest file is older than `before` (seconds since 1970)."""
    work = root / "work"
    for path in [*sorted(work.glob("*")), *(root / name for name in CACHES), *orphans(root)]:
        spared = path.name in ("cores", "journal", "outbox") or path.suffix == ".lock"
        if spared or not path.exists() or newest(path) > before:
            continue
        lock = FileLock(path / "lock")
        try:
            if path.name.startswith("train-"):
                lock.acquire(timeout=0)
            yield path
        except Timeout:
            print(f"{path.relative_to(root)} is in use")
        finally:
            lock.release()


def orphans(root: Path) -> list[Path]:
    """The files of rows that are in MLflow's database no more."""
    if not (root / "mlflow.db").is_file() or os.environ.get("MLFLOW_TRACKING_URI"):
        return []
    known = {run.info.run_id for run in connect(root).all_runs(all_experiments=True)}
    found = sorted((root / "mlartifacts").glob("[0-9a-f]" * 32))  # named by the ids of runs
    return [path for path in found if path.name not in known]


def newest(path: Path) -> float:
    """When a file, or the youngest one in a folder, was last written."""
    return max((file.stat().st_mtime for file in [path, *path.rglob("*")] if file.is_file()), default=0.0)


def size(path: Path) -> int:
    """Bytes of all files in it."""
    return sum(file.stat().st_size for file in [path, *path.rglob("*")] if file.is_file())


def said(what: object, freed: int) -> int:
    """Say what goes, if it is worth a line."""
    if freed:
        print(f"{freed / 1e6:9,.1f} MB  {what}")
    return freed


if __name__ == "__main__":
    renamed("clean", main)
