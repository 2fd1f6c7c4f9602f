"""The few lines that the stage scripts share."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path

from tqdm import tqdm


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


def renamed(command: str, main: Callable[[], None]) -> None:
    """Run a command under its name of version 0.1, which version 0.3 drops; says the new one."""
    print(f"python -m pipeline.{command} is now: python -m pipeline {command}", file=sys.stderr)
    run(main)


def bar(total: int, unit: str, name: str) -> tqdm:
    """A progress bar, on a terminal only."""
    return tqdm(total=total, unit=unit, desc=name, unit_scale=True, disable=None, leave=False)


def project_root() -> Path:
    """The main checkout: DVC runs experiments in temporary copies of it and says where it is."""
    return Path(os.environ.get("DVC_ROOT") or ".").absolute()


def require(*paths: Path) -> None:
    """Raise ValueError for the first path that is missing: the stage that makes it has not run."""
    for path in paths:
        if not path.exists():
            raise ValueError(f"{path} is missing; `dvc repro` makes it")
