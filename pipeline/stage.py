"""What the stage scripts share: command line, error messages, progress bars, the project's folder."""

from __future__ import annotations

import argparse
import errno
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tqdm import tqdm

from pipeline import show_error
from pipeline.inputs import check_unchanged, snapshot
from pipeline.versions import check_versions

MAKES_IT = "Run `dvc repro`, which makes it."
MAIN_CHECKOUT = "MAIN_CHECKOUT"  # environment variable: the folder of the project whose clone a stage runs in


def arguments(doc: str | None, texts: Mapping[str, str] | None = None, **paths: str) -> argparse.Namespace:
    """Parse a stage's command line: --params, and an option --NAME PATH for each of `paths` (name -> default).

    texts: other options (--NAME -> help), whose values are text; None where they are not given.
    """
    parser = argparse.ArgumentParser(description=(doc or "").split("\n")[0])
    for name, default in {"params": "params.yaml", **paths}.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=Path, default=Path(default), metavar="PATH")
    for name, meaning in (texts or {}).items():
        parser.add_argument(name, help=meaning)
    return parser.parse_args()


def run(main: Callable[[], None]) -> None:
    """Run a stage or command. A ValueError or OSError becomes one line on standard error and exit status 1.

    In one of several processes of a stage, the launcher prints the line. With TRACEBACK in the environment, Python's
    traceback is printed instead. A stage does not start with other versions of packages than versions.yaml records,
    and fails if what it depends on was edited while it ran.
    """
    try:
        check_versions()
        before = snapshot()
        main()
        check_unchanged(before)
    except (ValueError, OSError) as error:
        if os.environ.get("TRACEBACK"):
            raise
        reason = in_a_line(error)
        sys.exit(1 if pass_on(reason) else f"error: {reason}")
    except KeyboardInterrupt as error:
        show_error(KeyboardInterrupt, error, None)
        sys.exit(130)
    finally:
        gc.freeze()  # without it Python searches torch and MLflow for garbage at exit: up to 1.4 s


def in_a_line(error: Exception) -> str:
    """What a user needs to know of an error."""
    if not isinstance(error, OSError):
        return str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):  # a write names no file
        return f"The disk of {error.filename or Path.cwd()} is full. Free some space, and run the same command again."
    return f"{error.filename}: {error.strerror}" if error.filename else str(error)


def pass_on(reason: str) -> bool:
    """In one of several processes of a stage: pass the reason of its end to their launcher, which prints it once."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path:
        Path(path).write_text(json.dumps({"message": reason, "timestamp": int(time.time()), "reported": True}))
    return bool(path)


def bar(total: int, unit: str, name: str, shown: bool = True) -> tqdm:
    """A progress bar, shown on a terminal only. shown: False for all processes of a stage but the first."""
    return tqdm(total=total, unit=unit, desc=name, unit_scale=True, disable=None if shown else True, leave=False)


def project_root() -> Path:
    """The folder of the main checkout: DVC_ROOT, which DVC sets, since it may run a stage in a temporary copy.

    An experiment on a cluster runs in a temporary clone, so there the command `experiment` sets MAIN_CHECKOUT.
    """
    return Path(os.environ.get(MAIN_CHECKOUT) or os.environ.get("DVC_ROOT") or ".").absolute()


def read(path: Path, reader: Callable[[Path], Any]) -> Any:
    """The result of `reader` for a file. Raises ValueError, one line with the file and the remedy."""
    require(path)
    try:
        return reader(path)
    except ValueError as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}; delete it and run `dvc repro`") from None


def read_table(path: Path) -> dict[str, Any]:
    """The names and values in a JSON file. Raises ValueError if it has no JSON object."""
    values = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(values, dict):
        raise ValueError(f"must be an object of names and values, not {type(values).__name__}")
    return values


def require(*paths: Path) -> None:
    """Raise ValueError for the first path that does not exist: the stage that writes it has not run."""
    for path in paths:
        if not path.exists():
            raise ValueError(f"{path} is missing. {MAKES_IT}")
