"""How a stage starts and ends: command line, inputs, error messages, progress bars, the project's folder."""

from __future__ import annotations

import argparse
import errno
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from filelock import FileLock, Timeout

from pipeline import STARTED, show_error
from pipeline.inputs import Inputs, check_unchanged, is_code_newer, outs, read_values
from pipeline.versions import ROOT, check_versions
from transformer.files import read_lines, remove_temporaries

if TYPE_CHECKING:
    from tqdm import tqdm

MAKES_IT = "Run `dvc repro`, which makes it."
MAIN_CHECKOUT = "MAIN_CHECKOUT"  # environment variable: the folder of the project whose clone a stage runs in


def arguments(doc: str | None, texts: Mapping[str, str] | None = None, **paths: str) -> argparse.Namespace:
    """Parse a stage's command line: --params, and an option --NAME PATH for each of `paths` (name -> default).

    texts: options with a text value, --NAME -> help. An option that is not given is None.
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
        name = running_stage()
        stages = read_values(ROOT / "dvc.yaml")["stages"]
        check_versions(stages.get(name, {}))
        if name in stages and "DVC_STAGE" in os.environ and "RANK" not in os.environ:
            run_for_dvc(name, stages, main)
        else:
            main()
    except (ValueError, OSError) as error:
        if os.environ.get("TRACEBACK"):
            raise
        reason = error_line(error)
        sys.exit(1 if pass_on(reason) else f"error: {reason}")
    except KeyboardInterrupt as error:
        show_error(KeyboardInterrupt, error, None)
        sys.exit(130)
    finally:
        gc.freeze()  # without it Python searches torch and MLflow for garbage at exit: up to 1.4 s


def run_for_dvc(name: str, stages: Mapping[str, Any], main: Callable[[], None]) -> None:
    """Run a stage for DVC. It waits for a process of the same stage, such as one that outlived a killed DVC.

    stages: those of dvc.yaml. Raises ValueError if an input changed while the stage ran.
    """
    with hold_lock(Path("work") / f"stage-{name}.lock", "stage"):
        for out in outs(stages[name]):
            remove_temporaries(Path(out))
        inputs = Inputs.read(name, stages)
        check_unchanged(name, [path for path in inputs.paths if is_code_newer(Path(path), STARTED)])
        before = inputs.contents()
        main()
        after = inputs.contents()
        check_unchanged(name, [path for path in before if before[path] != after[path]])


@contextmanager
def hold_lock(path: Path, what: str = "training") -> Iterator[None]:
    """Hold a lock file, of a stage, a training or `what`. If another process holds it, print a message and wait."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(
            f"Another process runs the same {what} (lock {path}). This process waits until that one has ended. "
            "Stop one of the two if you need only one.",
            flush=True,
        )
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def running_stage() -> str:
    """The stage that this process runs as `python -m pipeline.STAGE`, or another name if it runs none."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name.removeprefix("pipeline.") if spec else ""


def error_line(error: Exception) -> str:
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
    from tqdm import tqdm

    return tqdm(total=total, unit=unit, desc=name, unit_scale=True, disable=None if shown else True, leave=False)


def project_root() -> Path:
    """The folder of the main checkout: DVC_ROOT, which DVC sets, since it may run a stage in a temporary copy.

    An experiment on a cluster runs in a temporary clone, so there the command `experiment` sets MAIN_CHECKOUT.
    """
    return Path(os.environ.get(MAIN_CHECKOUT) or os.environ.get("DVC_ROOT") or ".").absolute()


class Texts(NamedTuple):
    """The lines of a split, one per sentence. Each list has the same length."""

    sources: list[str]
    references: list[str]
    hypotheses: list[str]

    @classmethod
    def read(cls, raw: Path, hypotheses: Path, split: str) -> Texts:
        """Read a split (valid or a test set) from the folders of the corpus and of the translations.

        Raises ValueError if a file is missing or not UTF-8, or if their numbers of lines differ.
        """
        files = raw / f"{split}.src", raw / f"{split}.tgt", hypotheses / f"{split}.hyp"
        texts = cls(*(read(path, lambda path: list(read_lines(path))) for path in files))
        for path, lines in zip(files, texts, strict=True):
            if len(lines) != len(texts.references):
                counts = f"{len(lines):,} lines, but {files[1]} has {len(texts.references):,}"
                raise ValueError(f"{path} has {counts}. Nothing was written. Run `dvc repro`.")
        return texts


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
