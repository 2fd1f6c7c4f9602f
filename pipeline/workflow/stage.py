"""How a stage starts and ends: command line, inputs, error messages, progress bars, the project's folder."""

from __future__ import annotations

import argparse
import errno
import gc
import json
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from pipeline import STARTED, show_error
from pipeline.workflow.params import parse_yaml
from pipeline.workflow.versions import ROOT, check_versions
from transformer.evaluation.texts import UnreadableInput
from transformer.files import printable, remove_temporaries, write_text

if TYPE_CHECKING:
    from tqdm import tqdm

OUTS = ("outs", "metrics", "plots")  # what a stage writes, by the names of dvc.yaml
SECONDS_TO_SAVE = 300  # for a training that is asked to stop, before it is killed
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
    """Run a stage or command. An error becomes one line on standard error and exit status 1.

    The line names the file in work/ that has Python's traceback. In one of several processes of a stage, the launcher
    prints the line. A stage does not start with other versions of packages than versions.yaml records.
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
        place = keep_traceback(Path(sys.argv[0]).stem if name in ("", "__main__") else name)
        reason = printable(error_line(error)) + (f" Traceback: {place}" if place else "")
        sys.exit(1 if pass_on(reason) else f"error: {reason}")
    except KeyboardInterrupt as error:
        show_error(KeyboardInterrupt, error, None)
        sys.exit(130)
    finally:
        gc.freeze()  # without it Python searches torch and MLflow for garbage at exit: up to 1.4 s


def keep_traceback(name: str) -> str:
    """Write the traceback of the error being handled; returns the path, or "" if it cannot be written."""
    path = Path("work") / f"error-{name.rpartition(' ')[2]}-{os.getpid()}.txt"
    with suppress(OSError):
        write_text(project_root() / path, traceback.format_exc())
        return str(path)
    return ""


def run_for_dvc(name: str, main: Callable[[], None]) -> None:
    """Run a stage for DVC. It waits for a process of the same stage, such as one that outlived a killed DVC.

    Raises ValueError if an input changed while the stage ran.
    """
    stages = stages_of((ROOT / "dvc.yaml").read_text(encoding="utf-8"), read_values("params.yaml"))
    with hold_lock(Path("work") / f"stage-{name}.lock", "stage"):
        for out in outs(stages[name]):
            remove_temporaries(Path(out))
        stage = stages[name]
        before = inputs_of(stage)
        check_unchanged(name, [dep for dep in stage["deps"] if is_code_newer(Path(dep), STARTED)])
        main()
        after = inputs_of(stage)
        check_unchanged(name, [name for name in {**before, **after} if before.get(name) != after.get(name)])


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


def inputs_of(stage: Mapping[str, Any]) -> dict[str, object]:
    """The state of a stage's inputs: dep -> its files, each with inode, size and time of change; param -> its value.

    It is compared at the start and the end of the stage. DVC hashes inputs only at the end, so an edit in between would
    count as the input.
    """
    inputs: dict[str, object] = {}
    for file, names in params_of(stage):
        values = read_values(file)
        inputs |= {f"{name} of {file}" if name in stage["deps"] else name: values.get(name) for name in names or values}
    for dep in stage["deps"]:
        facts = [(str(file), file.stat()) for file in files_of(Path(dep))]
        inputs[dep] = [(file, fact.st_ino, fact.st_size, fact.st_mtime_ns) for file, fact in facts]
    return inputs


def stages_of(dvc_yaml: str, params: Mapping[str, object]) -> dict[str, dict]:
    """The stages in the text of a dvc.yaml, with the values of params in place of ${name}."""
    text = re.sub(r"(?<!\\)\$\{(\w+)\}", lambda match: str(params.get(match[1], match[0])), dvc_yaml)
    return dict(parse_yaml(text, "dvc.yaml")["stages"])


def outs(stage: Mapping[str, Any]) -> list[str]:
    """The paths that a stage in dvc.yaml writes."""
    return [path_of(out) for kind in OUTS for out in stage.get(kind, [])]


def path_of(entry: str | Mapping[str, Any]) -> str:
    """The path of a dep or out in dvc.yaml."""
    return entry if isinstance(entry, str) else next(iter(entry))


def params_of(stage: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """The params of a stage in dvc.yaml: each file and its names; no names stand for all of the file."""
    for entry in stage.get("params", []):
        for file, names in (entry if isinstance(entry, dict) else {"params.yaml": [entry]}).items():
            yield file, names or []


def read_values(path: Path | str) -> dict[str, Any]:
    """The names and values of a YAML file, unchecked; see `parse_yaml`."""
    return parse_yaml(Path(path).read_text(encoding="utf-8"), path)


def files_of(path: Path) -> list[Path]:
    """A file, or the files in a folder, but for Python's caches."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sorted(file for file in files if file.is_file() and file.suffix != ".pyc")


def is_code_newer(path: Path, moment: int) -> bool:
    """Whether a Python file, or one in a folder, was written or moved here after a moment (in ns)."""
    return any(file.stat().st_ctime_ns > moment for file in files_of(path) if file.suffix == ".py")


def check_unchanged(name: str, changed: list[str]) -> None:
    """Raise ValueError if inputs of a stage were edited while it ran. changed: their paths."""
    if changed:
        raise ValueError(
            f"{', '.join(sorted(changed))} changed while stage {name} ran. The results belong to the old content, so "
            "they were not recorded. Run `dvc repro`. If you undo the edit first, no training is repeated."
        )


def error_line(error: Exception) -> str:
    """What a user needs to know of an error."""
    if isinstance(error, UnreadableInput):
        return f"{error} {MAKES_IT}"
    if isinstance(error, ValueError):
        return str(error)
    if not isinstance(error, OSError):
        return f"{type(error).__name__}: {error}. This is a fault of the program."
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

    A search, and deploy/slurm/experiments.sbatch, run experiments in clones, for which they set MAIN_CHECKOUT.
    """
    return Path(os.environ.get(MAIN_CHECKOUT) or os.environ.get("DVC_ROOT") or ".").absolute()


def corpus_name(params: Mapping[str, Any]) -> str:
    """The name of the corpus of these params for people: that of its folder or manifest."""
    return Path(str(params.get("corpus"))).absolute().name.removesuffix(".json")


def require(*paths: Path) -> None:
    """Raise ValueError for the first path that does not exist: the stage that writes it has not run."""
    for path in paths:
        if not path.exists():
            raise ValueError(f"{path} is missing. {MAKES_IT}")
