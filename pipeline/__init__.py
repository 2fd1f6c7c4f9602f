"""The stages of dvc.yaml, one script each, and the rooms around them. `python -m pipeline` lists the commands."""

import io
import os
import sys
from pathlib import Path
from types import TracebackType

Facts = tuple[int, int, int]  # inode, size and time of a file


def facts_of(file: Path) -> Facts:
    """The inode, size and time of a file. If they are the same twice, it was neither written nor replaced in between.

    Times are compared with each other, never with a clock. The time of code is that of its last change (ctime), which
    no program can set back; that of data is that of its last writing, since a link that DVC makes changes its ctime.
    """
    fact = file.stat()
    return fact.st_ino, fact.st_size, fact.st_ctime_ns if file.suffix == ".py" else fact.st_mtime_ns


# The code of a stage that DVC runs, before any of it is imported: path -> facts.
CODE = (path for room in ("pipeline", "transformer") for path in Path(room).rglob("*.py"))
IMPORTED = {path.as_posix(): facts_of(path) for path in CODE} if "DVC_STAGE" in os.environ else {}
# Else torch prints 20 lines when a connection between processes ends. It reads the variable when it is loaded.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
for stream in (sys.stdout, sys.stderr):
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")  # LC_ALL=C must not end a training at a letter


def show_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an error that ends the process: Ctrl-C and a missing package in one line, since both happen in imports."""
    from transformer.files import mistake_line

    if isinstance(error, ModuleNotFoundError) and (line := mistake_line(error)):
        print(f"error: {line}", file=sys.stderr)
    elif not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    elif os.environ.get("RANK", "0") == "0":
        print("Interrupted. Run the same command again.", file=sys.stderr)


sys.excepthook = show_error
