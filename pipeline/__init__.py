"""The stages of dvc.yaml, one script each, and the rooms around them. `python -m pipeline` lists the commands."""

import io
import os
import sys
import time
from types import TracebackType

STARTED = time.time_ns()  # before any module that a stage depends on was read
# Else torch prints 20 lines when a connection between processes ends. It reads the variable when it is loaded.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
for stream in (sys.stdout, sys.stderr):
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")  # LC_ALL=C must not end a training at a letter


def show_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an error that ends the process: Ctrl-C and a missing package in one line, since both happen in imports."""
    if isinstance(error, ModuleNotFoundError):
        print(
            f"error: {sys.executable} has no package {error.name}. Nothing was run. Type `. .venv/bin/activate`, which "
            "`make setup` makes, and the same command again.",
            file=sys.stderr,
        )
    elif not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    elif os.environ.get("RANK", "0") == "0":
        print("Interrupted. Run the same command again.", file=sys.stderr)


sys.excepthook = show_error
