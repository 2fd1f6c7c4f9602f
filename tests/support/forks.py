"""Programs run in a copy of this process: what they import is there, which takes them longer than what tests ask."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

CAN_FORK = sys.platform == "linux"  # libraries of macOS may crash in a copy of a process
# What DVC imports when it needs it
IMPORTS = "dvc.cli.parser dvc.repo dvc.repo.reproduce dvc.stage.run dvc.scm dvc.dirs dvc.cachemgr dvc.data_cloud"
IMPORTS += " dvc.lock dvc.rwlock dvc.render dvc_render.vega networkx dulwich.index pygit2 rich.progress ruamel.yaml"


def forked(
    program: Callable[[], object], words: Sequence[str], folder: Path, env: dict[str, str], merged: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder, in a copy of this process. words: its command line.

    As in a new process, nothing is remembered of other folders. merged: standard error goes to standard output.
    """
    with TemporaryFile() as output, TemporaryFile() as errors:
        child = os.fork()
        if not child:
            os._exit(status_of(program, words, folder, env, (output, output if merged else errors)))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = [(file.seek(0), file.read().decode())[1] for file in (output, errors)]
    return subprocess.CompletedProcess(list(words), status, *texts)


def status_of(
    program: Callable[[], object], words: Sequence[str], folder: Path, env: dict[str, str], files: Sequence[IO[bytes]]
) -> int:
    """Run a program with its output in two files; returns its exit status."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = list(words)
    for number, file in enumerate(files, start=1):
        os.dup2(file.fileno(), number)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115
        for number, mode in enumerate("rww")
    )
    forget()
    try:
        return int(program() or 0)  # type: ignore[call-overload]
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def forget() -> None:
    """Forget what the functions of pipeline/ remember, as a new process does."""
    for name, module in list(sys.modules.items()):
        for value in vars(module).values() if name.startswith("pipeline.") else ():
            if hasattr(value, "cache_clear"):
                value.cache_clear()


def dvc(words: Sequence[str], folder: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run DVC in a copy of this process. words: its command line, "dvc" included."""
    for name in IMPORTS.split():
        import_module(name)

    def program() -> int:
        for name in ("dvc", "dvc_objects", "dvc_data"):
            for handler in logging.getLogger(name).handlers:
                handler.setStream(sys.stdout)  # type: ignore[attr-defined]
        return import_module("dvc.cli").main(list(words[1:]))

    return forked(program, words, folder, env, merged=True)
