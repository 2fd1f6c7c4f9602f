"""How a stage starts and ends: command line, error messages, locks, progress bars, the project's folder."""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from pipeline import show_error
from pipeline.workflow.dvc_yaml import outs_of, stages_here
from pipeline.workflow.inputs import unchanged_inputs
from pipeline.workflow.params import read_values
from pipeline.workflow.versions import ROOT, check_versions
from transformer.files import (
    Mistake,
    UnreadableInput,
    Untrainable,
    escape_controls,
    mistake_line,
    remove_temporaries,
    write_json,
    write_text,
)

if TYPE_CHECKING:
    from tqdm import tqdm

SECONDS_TO_SAVE = 300  # for a training that is asked to stop, before it is killed
MAKES_IT = "Run `dvc repro`, which makes it."
END = "STAGE_END"  # environment variable: the file, JSON, in which a stage writes why it failed
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
    """Run a stage or command. An error becomes one line on standard error and exit status 1.

    The line of a bug names the file in work/ that has its traceback. In one of several processes of a stage, the
    launcher prints the line. A stage does not start with other versions of packages than versions.yaml records.
    """
    name = running_stage()
    try:
        stages = read_values(ROOT / "dvc.yaml")["stages"]
        check_versions(stages.get(name, {}))
        if name in stages and "DVC_STAGE" in os.environ and "RANK" not in os.environ:
            run_for_dvc(name, main)
        else:
            main()
    except Exception as error:
        reason = escape_controls(error_line(error, Path(sys.argv[0]).stem if name in ("", "__main__") else name))
        if end := os.environ.get(END):
            write_json(Path(end), {"reason": reason, "untrainable": isinstance(error, Untrainable)})
        sys.exit(1 if report_to_launcher(reason) else f"error: {reason}")
    except KeyboardInterrupt as error:
        show_error(KeyboardInterrupt, error, None)
        sys.exit(130)
    finally:
        gc.freeze()  # without it Python searches torch and MLflow for garbage at exit: up to 1.4 s


def keep_traceback(name: str) -> str:
    """Write the traceback of the error being handled. Returns the path or, if it cannot be written, the traceback."""
    path = Path("work") / f"error-{name.rpartition(' ')[2]}-{os.getpid()}.txt"
    with suppress(OSError):
        write_text(project_root() / path, traceback.format_exc())
        return str(path)
    return traceback.format_exc()


def run_for_dvc(name: str, main: Callable[[], None]) -> None:
    """Run a stage for DVC. It waits for a process of the same stage, such as one that outlived a killed DVC.

    Raises Mistake if an input changed while the stage ran.
    """
    stage = stages_here()[name]
    with hold_lock(Path("work") / f"stage-{name}.lock", "stage"):
        for out in outs_of(stage):
            remove_temporaries(Path(out))
        with unchanged_inputs(name, stage), suppress_success():
            main()


@contextmanager
def suppress_success() -> Iterator[None]:
    """Go on after the block if it ends by SystemExit with status 0, as the parent of several processes does."""
    try:
        yield
    except SystemExit as end:
        if end.code:
            raise


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


def error_line(error: Exception, name: str) -> str:
    """The line of the error being handled. Of a bug it names the file that has the traceback. name: of the stage."""
    if isinstance(error, UnreadableInput):
        return f"{error} Delete it if it is there. {MAKES_IT}"
    bug = f"{type(error).__name__}: {error}. This is a bug of this program, not your mistake."
    return mistake_line(error) or f"{bug} Traceback: {keep_traceback(name)}"


def report_to_launcher(reason: str) -> bool:
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

    A search, and deploy/slurm/experiments.sbatch, run experiments in clones, for which they set MAIN_CHECKOUT.
    """
    return Path(os.environ.get(MAIN_CHECKOUT) or os.environ.get("DVC_ROOT") or ".").absolute()


def corpus_name(params: Mapping[str, Any]) -> str:
    """The name of the corpus of these params for people: that of its folder or manifest."""
    return Path(str(params.get("corpus"))).absolute().name.removesuffix(".json")


def require(*paths: Path) -> None:
    """Raise Mistake for the first path that does not exist: the stage that writes it has not run."""
    for path in paths:
        if not path.exists():
            raise Mistake(f"{path} is missing. {MAKES_IT}")
