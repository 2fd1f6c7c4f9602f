"""How a stage starts and ends: command line, inputs, error messages, progress bars, the project's folder."""

from __future__ import annotations

import argparse
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

from pipeline import IMPORTED, Facts, facts_of, show_error
from pipeline.workflow.params import parse_yaml
from pipeline.workflow.versions import ROOT, check_versions
from transformer.files import (
    Mistake,
    UnreadableInput,
    Untrainable,
    content_key,
    mistake_line,
    printable,
    remove_temporaries,
    write_json,
    write_text,
)

if TYPE_CHECKING:
    from tqdm import tqdm

OUTS = ("outs", "metrics", "plots")  # what a stage writes, by the names of dvc.yaml
SECONDS_TO_SAVE = 300  # for a training that is asked to stop, before it is killed
MAKES_IT = "Run `dvc repro`, which makes it."
END = "STAGE_END"  # environment variable: the file, JSON, in which a stage writes why it failed
INPUTS = "STAGE_INPUTS"  # environment variable: what `check_inputs` compares, as JSON
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
        reason = printable(error_line(error, Path(sys.argv[0]).stem if name in ("", "__main__") else name))
        if end := os.environ.get(END):
            write_json(Path(end), {"reason": reason, "untrainable": isinstance(error, Untrainable)})
        sys.exit(1 if pass_on(reason) else f"error: {reason}")
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
    stage = stages_of((ROOT / "dvc.yaml").read_text(encoding="utf-8"), read_values("params.yaml"))[name]
    with hold_lock(Path("work") / f"stage-{name}.lock", "stage"):
        for out in outs(stage):
            remove_temporaries(Path(out))
        os.environ[INPUTS] = json.dumps([name, inputs_of(stage, IMPORTED)])
        try:
            check_inputs()
            with suppress_success():
                main()
            check_inputs()
        finally:
            del os.environ[INPUTS]


@contextmanager
def suppress_success() -> Iterator[None]:
    """Surround code that may end the process: with status 0, as the parent of several processes does, it goes on."""
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


def inputs_of(stage: Mapping[str, Any], imported: Mapping[str, Facts] | None = None) -> dict[str, str]:
    """The state of a stage's inputs: dep -> a hash of its files' names and facts; param -> its value.

    It is compared at the start and the end of the stage. DVC hashes inputs only at the end, so an edit in between would
    count as the input. imported: facts of files, which count in place of those that the files have now.
    """
    inputs: dict[str, str] = {}
    for file, names in params_of(stage):
        values = read_values(file)
        places = {name: f"{name} of {file}" if name in stage["deps"] else name for name in names or values}
        inputs |= {place: repr(values.get(name)) for name, place in places.items()}
    for dep in stage["deps"]:
        names = {file.as_posix(): file for file in files_of(Path(dep))}
        inputs[dep] = content_key(**{name: (imported or {}).get(name) or facts_of(names[name]) for name in names})
    return inputs


def check_inputs() -> None:
    """Raise Mistake if inputs of the stage that DVC runs were edited since it began. Several processes may call this.

    A training also calls it before its first update, so that no state comes from an edit that is undone later.
    """
    if INPUTS not in os.environ:
        return
    name, before = json.loads(os.environ[INPUTS])
    stages = stages_of((ROOT / "dvc.yaml").read_text(encoding="utf-8"), read_values("params.yaml"))
    now = inputs_of(stages[name])
    if changed := sorted(place for place in before | now if before.get(place) != now.get(place)):
        raise Mistake(
            f"{', '.join(changed)} changed while stage {name} ran. The results belong to the old content, so they were "
            "not recorded. Run `dvc repro`."
        )


def stages_of(dvc_yaml: str, params: Mapping[str, object]) -> dict[str, dict]:
    """The stages in the text of a dvc.yaml, with the values of params in place of ${name}."""

    def filled(value: Any) -> Any:
        if isinstance(value, str):
            return re.sub(r"(?<!\\)\$\{(\w+)\}", lambda match: str(params.get(match[1], match[0])), value)
        if isinstance(value, list):
            return [filled(each) for each in value]
        return {filled(name): filled(each) for name, each in value.items()} if isinstance(value, dict) else value

    return filled(parse_yaml(dvc_yaml, "dvc.yaml")["stages"])


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


def error_line(error: Exception, name: str) -> str:
    """The line of the error being handled. Of a bug it names the file that has the traceback. name: of the stage."""
    if isinstance(error, UnreadableInput):
        return f"{error} Delete it if it is there. {MAKES_IT}"
    bug = f"{type(error).__name__}: {error}. This is a bug of this program, not your mistake."
    return mistake_line(error) or f"{bug} Traceback: {keep_traceback(name)}"


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
    """Raise Mistake for the first path that does not exist: the stage that writes it has not run."""
    for path in paths:
        if not path.exists():
            raise Mistake(f"{path} is missing. {MAKES_IT}")
