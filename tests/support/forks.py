"""Programs run in a copy of a process that has imported what they need and started no thread: a fork server.

Importing takes them longer than what tests ask. A test process has threads of torch and CTranslate2, which a copy of it
would lack and wait for.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

CAN_FORK = sys.platform == "linux"  # libraries of macOS may crash in a copy of a process
SERVER = multiprocessing.get_context("forkserver") if CAN_FORK else None
if SERVER:
    SERVER.set_forkserver_preload(["support.preloaded"])


def run_stage(words: Sequence[str]) -> None:
    """Run a stage, or for `__main__` a command of the pipeline. words: its name and its options."""
    from pipeline.workflow.stage import run

    main = import_module(f"pipeline.{words[0]}").main
    sys.modules["__main__"] = SimpleNamespace(__spec__=SimpleNamespace(name=f"pipeline.{words[0]}"))  # type: ignore
    main() if words[0] == "__main__" else run(main)


def run_dvc(words: Sequence[str]) -> int:
    """Run DVC. words: its command line, "dvc" included."""
    for name in ("dvc", "dvc_objects", "dvc_data"):
        for handler in logging.getLogger(name).handlers:
            handler.setStream(sys.stdout)  # type: ignore[attr-defined]
    return import_module("dvc.cli").main(list(words[1:]))


def forked(
    program: Callable[[Sequence[str]], int | None],
    words: Sequence[str],
    folder: Path,
    env: dict[str, str],
    merged: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder, in a copy of the fork server. words: its command line.

    merged: standard error goes to standard output.
    """
    assert SERVER
    with TemporaryDirectory() as place:
        files = [Path(place, name) for name in ("output", "output" if merged else "errors")]
        process = SERVER.Process(target=run_program, args=(program, list(words), str(folder), dict(env), files))
        process.start()
        process.join()
        texts = [file.read_text(encoding="utf-8") for file in dict.fromkeys(files)]
    return subprocess.CompletedProcess(list(words), process.exitcode or 0, *texts, *[""] * merged)


def run_program(
    program: Callable[[Sequence[str]], int | None],
    words: list[str],
    folder: str,
    env: dict[str, str],
    files: Sequence[Path],
) -> None:
    """Run a program with its output in files, and end this process with its status."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = words
    for number, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    sys.stdout, sys.stderr = (
        open(number, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115
        for number in (1, 2)
    )
    try:
        status = int(program(words) or 0)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def forget() -> None:
    """Forget what the functions of pipeline/ remember, as a new process does."""
    for name, module in list(sys.modules.items()):
        for value in vars(module).values() if name.startswith("pipeline.") else ():
            if hasattr(value, "cache_clear"):
                value.cache_clear()
