"""The few lines that the stage scripts share."""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout
from tqdm import tqdm

from transformer import machine
from transformer.files import sha256, sha256_text

# Modules that cannot change a result.
HARMLESS = ("machine", "outbox", "params", "progress", "recording", "tracking", "view")


def arguments(doc: str | None, **paths: str) -> argparse.Namespace:
    """Parse a stage's command line: an option --name PATH for each path, with its default, and --params."""
    parser = argparse.ArgumentParser(description=(doc or "").split("\n")[0])
    for name, default in {"params": "params.yaml", **paths}.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=Path, default=Path(default), metavar="PATH")
    return parser.parse_args()


def run(main: Callable[[], None]) -> None:
    """Run a stage; a mistake of the user's (ValueError, or a file that cannot be read or written) ends in one line."""
    try:
        main()
    except (ValueError, OSError) as error:
        if os.environ.get("TRACEBACK"):
            raise
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else error
        sys.exit(f"error: {reason}")
    finally:
        gc.freeze()  # or Python searches all of torch and MLflow for garbage before it ends: up to 1.4 s


def bar(total: int, unit: str, name: str) -> tqdm:
    """A progress bar, on a terminal only."""
    return tqdm(total=total, unit=unit, desc=name, unit_scale=True, disable=None, leave=False)


def project_root() -> Path:
    """The main checkout: DVC runs experiments in temporary copies of it and says where it is."""
    return Path(os.environ.get("DVC_ROOT") or ".").absolute()


def code_key() -> str:
    """One hash over the code of transformer/ that this process has loaded, but for what cannot change a result."""
    files = {name: module.__file__ for name, module in sys.modules.items() if name.startswith("transformer.")}
    parts = sorted(name for name in files if name.removeprefix("transformer.") not in HARMLESS)
    return sha256_text("".join(f"{sha256(Path(str(files[name])))}  {name}\n" for name in parts))


def content_key(**parts: object) -> str:
    """One hash over named plain values."""
    return sha256_text(json.dumps(parts, sort_keys=True))


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold a lock file; who comes second says so and waits."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(f"another process is at the same training; waiting for it to finish ({path})", flush=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def cores(count: int) -> Iterator[None]:
    """Hold `count` of the machine's cores, or all, against other trainings of this project; wait until they are free.

    Threads that wait for each other must run at the same time: two trainings on the same two cores were measured to be
    five times slower each.
    """
    there = machine.cores()
    folder = project_root() / "work" / "cores"
    folder.mkdir(parents=True, exist_ok=True)
    paths, told = [folder / str(number) for number in range(there)], False
    while not (held := free_locks(paths, min(count, there))):
        if not told:
            print("waiting for another training to free its cores; OMP_NUM_THREADS=1 needs one only", flush=True)
            told = True
        time.sleep(1)
    try:
        yield
    finally:
        for lock in held:
            lock.release()


def free_locks(paths: list[Path], count: int) -> list[FileLock]:
    """`count` locks of those that nobody holds, taken together; none if they are fewer."""
    held: list[FileLock] = []
    with FileLock(paths[0].with_name("lock")):
        for path in paths:
            with suppress(Timeout):
                lock = FileLock(path)
                lock.acquire(timeout=0)
                held.append(lock)
            if len(held) == count:
                return held
        for lock in held:
            lock.release()
    return []


def require(*paths: Path) -> None:
    """Raise ValueError for the first path that is missing: the stage that makes it has not run."""
    for path in paths:
        if not path.exists():
            raise ValueError(f"{path} is missing; `dvc repro` makes it")
